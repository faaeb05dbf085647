"""GPUs as Prometheus sees them: base units, ratios from 0 to 1; a sensor that a GPU lacks is no sample."""

from collections.abc import Callable, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from hf_transformers_backend.gpu import GpuMemoryInfo

GpuValue = Callable[[GpuMemoryInfo], float | None]
GPU_SERIES: tuple[tuple[str, str, GpuValue], ...] = (
    ("memory_used_bytes", "Used memory of a GPU, all processes.", lambda gpu: gpu.used_bytes),
    ("memory_free_bytes", "Free memory of a GPU.", lambda gpu: gpu.free_bytes),
    ("memory_total_bytes", "Memory of a GPU.", lambda gpu: gpu.total_bytes),
    (
        "memory_used_ratio",
        "Used share of a GPU's memory.",
        lambda gpu: (
            gpu.used_bytes / gpu.total_bytes if gpu.used_bytes is not None and gpu.total_bytes else None
        ),
    ),
    (
        "utilization_ratio",
        "Busy share of a GPU's cores.",
        lambda gpu: _scaled(gpu.gpu_utilization_percentage, 0.01),
    ),
    ("temperature_celsius", "Temperature of a GPU.", lambda gpu: gpu.temperature_celsius),
    ("power_watts", "Power that a GPU draws.", lambda gpu: gpu.power_watts),
)


def gpu_families(gpus: Sequence[GpuMemoryInfo], driver: str | None) -> list[Metric]:
    """All series of the visible GPUs; a lost one has its info only."""
    info = GaugeMetricFamily(
        "flexserv_gpu_info", "A visible GPU.", labels=["gpu", "uuid", "name", "driver", "mig"]
    )
    for gpu in gpus:
        info.add_metric([*_gpu_labels(gpu), gpu.name or "", driver or "", str(gpu.is_mig).lower()], 1)
    return [info, *(_gpu_family(name, text, read, gpus) for name, text, read in GPU_SERIES)]


def _gpu_family(name: str, text: str, read: GpuValue, gpus: Sequence[GpuMemoryInfo]) -> Metric:
    family = GaugeMetricFamily(f"flexserv_gpu_{name}", text, labels=["gpu", "uuid"])
    for gpu in gpus:
        if (value := read(gpu)) is not None:
            family.add_metric(_gpu_labels(gpu), value)
    return family


def _gpu_labels(gpu: GpuMemoryInfo) -> list[str]:
    return [str(gpu.gpu_id), gpu.uuid or ""]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
