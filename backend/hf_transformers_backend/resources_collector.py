"""Memory, CPU, GPUs and the cache's disk as series, measured at scrape time, and the collector's health."""

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from huggingface_hub.constants import HF_HUB_CACHE
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hf_transformers_backend.resource_metrics import GpuMemoryInfo, Machine, RamInfo

log = logging.getLogger(__name__)


class ResourcesCollector(Collector):
    """A source that fails loses its series and clears `collect_success`; the others stay."""

    def __init__(
        self, machine: Machine, cache: Path = Path(HF_HUB_CACHE), clock: Callable[[], float] = time.time
    ) -> None:
        self._machine = machine
        self._cache = cache
        self._clock = clock
        self._lock = threading.Lock()
        self._last_success: float | None = None
        self._was_healthy = True

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        started = time.perf_counter()
        families: list[Metric] = []
        failures: list[str] = []
        for read in (self._memory, self._cpu, self._gpus, self._disk):
            try:
                families += read(failures)
            except (OSError, RuntimeError, ValueError) as error:  # the other series must come out
                failures.append(f"{type(error).__name__}: {error}")
        self._note(failures)
        yield from families
        prefix = "flexserv_resources_"
        yield GaugeMetricFamily(
            prefix + "collect_success",
            "1 if every source answered at this scrape.",
            value=float(not failures),
        )
        yield GaugeMetricFamily(
            prefix + "collect_duration_seconds",
            "Time that measuring took at this scrape.",
            value=time.perf_counter() - started,
        )
        if self._last_success is not None:
            yield GaugeMetricFamily(
                prefix + "last_success_timestamp_seconds",
                "When every source last answered.",
                value=self._last_success,
            )

    def _note(self, failures: Sequence[str]) -> None:
        """Remember, and log changes only: scrapes come every few seconds."""
        with self._lock:
            if not failures:
                self._last_success = self._clock()
            elif self._was_healthy:
                log.warning("Some resources cannot be measured: %s", "; ".join(failures))
            self._was_healthy = not failures

    def _memory(self, failures: list[str]) -> list[Metric]:
        ram = self._machine.read_ram()
        ratio = GaugeMetricFamily(
            "flexserv_memory_used_ratio",
            "Used share of the node's and the container's memory.",
            labels=["scope"],
        )
        ratio.add_metric(["node"], ram.used_bytes / ram.total_bytes)
        families: list[Metric] = [
            GaugeMetricFamily(
                "flexserv_memory_used_bytes", "The node's total less available.", value=ram.used_bytes
            ),
            GaugeMetricFamily(
                "flexserv_memory_available_bytes",
                "What the node can give without swapping.",
                value=ram.available_bytes,
            ),
            GaugeMetricFamily("flexserv_memory_total_bytes", "The node's memory.", value=ram.total_bytes),
            ratio,
        ]
        return families + _container_families(ram, ratio)

    def _cpu(self, failures: list[str]) -> list[Metric]:
        family = GaugeMetricFamily(
            "flexserv_cpu_utilization_ratio",
            "Busy share of a logical core since the scrape before.",
            labels=["cpu"],
        )
        for core in self._machine.cpu_sampler.recent():
            family.add_metric([str(core.cpu_id)], core.used_percentage / 100.0)
        return [family]

    def _gpus(self, failures: list[str]) -> list[Metric]:
        gpus = self._machine.read_gpus()
        failures += [f"GPU {gpu.gpu_id}: {gpu.error}" for gpu in gpus if gpu.error is not None]
        info = GaugeMetricFamily(
            "flexserv_gpu_info", "A visible GPU.", labels=["gpu", "uuid", "name", "driver", "mig"]
        )
        driver = self._machine.driver_version() or ""
        for gpu in gpus:
            info.add_metric([*_gpu_labels(gpu), gpu.name or "", driver, str(gpu.is_mig).lower()], 1)
        return [info, *(_gpu_family(name, text, read, gpus) for name, text, read in GPU_SERIES)]

    def _disk(self, failures: list[str]) -> list[Metric]:
        """The file system under the hub's cache, which may not exist yet."""
        folder = next(folder for folder in (self._cache, *self._cache.absolute().parents) if folder.is_dir())
        usage = shutil.disk_usage(folder)
        return [
            GaugeMetricFamily(
                "flexserv_cache_used_bytes", "Used on the file system of the hub's cache.", value=usage.used
            ),
            GaugeMetricFamily(
                "flexserv_cache_free_bytes", "Free on the file system of the hub's cache.", value=usage.free
            ),
        ]


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


def _gpu_family(name: str, text: str, read: GpuValue, gpus: Sequence[GpuMemoryInfo]) -> Metric:
    family = GaugeMetricFamily(f"flexserv_gpu_{name}", text, labels=["gpu", "uuid"])
    for gpu in gpus:
        if (value := read(gpu)) is not None:
            family.add_metric(_gpu_labels(gpu), value)
    return family


def _container_families(ram: RamInfo, ratio: GaugeMetricFamily) -> list[Metric]:
    container = ram.container
    if container is None:
        return []
    ratio.add_metric(["container"], container.unreclaimable_bytes / container.limit_bytes)
    return [
        GaugeMetricFamily(
            "flexserv_container_memory_limit_bytes",
            "The cgroup limit that binds.",
            value=container.limit_bytes,
        ),
        GaugeMetricFamily(
            "flexserv_container_memory_working_set_bytes",
            "Usage less inactive file pages, as the kubelet counts.",
            value=container.working_set_bytes,
        ),
        GaugeMetricFamily(
            "flexserv_container_memory_unreclaimable_bytes",
            "What the kernel cannot take back: what decisions are made with.",
            value=container.unreclaimable_bytes,
        ),
    ]


def _gpu_labels(gpu: GpuMemoryInfo) -> list[str]:
    return [str(gpu.gpu_id), gpu.uuid or ""]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
