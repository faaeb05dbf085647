"""Accelerators as this process sees them: what is told of each, what CUDA adds to it, and Apple Silicon's.

`gpu_id` is the ordinal within the visible devices, as in torch's `cuda:<gpu_id>`. Torch is handed in, so this
module loads anywhere. Nothing here raises for a device's sake.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from hf_transformers_backend.units import gibibytes, percentage


@dataclass(frozen=True, slots=True)
class GpuMemoryInfo:
    """One visible accelerator. Bytes are None only when the device no longer answers (`error` says why)."""

    gpu_id: int
    used_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    gpu_utilization_percentage: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    backend: str = "cuda"
    uuid: str | None = None
    name: str | None = None
    is_mig: bool = False
    error: str | None = None

    @property
    def device(self) -> str:
        """torch's name for it."""
        return "mps" if self.backend == "mps" else f"{self.backend}:{self.gpu_id}"

    @property
    def used_percentage(self) -> float | None:
        if self.used_bytes is None or self.total_bytes is None:
            return None
        return percentage(self.used_bytes, self.total_bytes)

    @property
    def used_gb(self) -> float | None:
        return None if self.used_bytes is None else gibibytes(self.used_bytes)

    @property
    def free_gb(self) -> float | None:
        return None if self.free_bytes is None else gibibytes(self.free_bytes)

    @property
    def total_gb(self) -> float | None:
        return None if self.total_bytes is None else gibibytes(self.total_bytes)

    def to_dict(self) -> dict[str, Any]:
        """The specification's object; what cannot be measured is left out."""
        values = {
            "used_percentage": self.used_percentage,
            "used_gb": self.used_gb,
            "free_gb": self.free_gb,
            "total_gb": self.total_gb,
            "gpu_utilization_percentage": self.gpu_utilization_percentage,
            "temperature_celsius": self.temperature_celsius,
            "power_watts": self.power_watts,
            "error": self.error,
        }
        return {"gpu_id": self.gpu_id} | {key: value for key, value in values.items() if value is not None}


def read_mps(torch: ModuleType | Any) -> list[GpuMemoryInfo]:
    """Apple's GPU, if torch runs on it: what tensors take of what the driver gave to this process."""
    if not torch.backends.mps.is_available():
        return []
    used = int(torch.mps.current_allocated_memory())
    total = max(int(torch.mps.driver_allocated_memory()), used)
    return [
        GpuMemoryInfo(
            0, used_bytes=used, free_bytes=total - used, total_bytes=total, backend="mps", name="Apple"
        )
    ]


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A device as CUDA counts it. Bytes are None where this process holds nothing: asking would open it."""

    uuid: str
    free_bytes: int | None = None
    total_bytes: int | None = None


def read_cuda(torch: ModuleType | Any) -> list[CudaDevice]:
    """CUDA's own view, in its own order; empty while this process does not use CUDA, and when that fails."""
    if not torch.cuda.is_initialized():
        return []
    try:
        return [_cuda_device(torch, ordinal) for ordinal in range(torch.cuda.device_count())]
    except RuntimeError:  # a device that failed; whoever works on it gets to know why
        return []


def as_cuda_sees(gpus: Sequence[GpuMemoryInfo], cuda: Sequence[CudaDevice]) -> list[GpuMemoryInfo]:
    """NVML's reading with CUDA's numbers for devices, and the smaller of both totals.

    NVML counts memory that the driver keeps for itself; it numbers by PCI bus, CUDA perhaps by speed.
    """
    ordinals = {_plain(device.uuid): ordinal for ordinal, device in enumerate(cuda)}
    known = [gpu for gpu in gpus if gpu.uuid is not None and _plain(gpu.uuid) in ordinals]
    if len(known) != len(gpus) or len(cuda) != len(gpus):
        return list(gpus)
    seen = []
    for gpu in known:
        ordinal = ordinals[_plain(gpu.uuid or "")]
        seen.append(_narrowed(replace(gpu, gpu_id=ordinal), cuda[ordinal]))
    return sorted(seen, key=lambda gpu: gpu.gpu_id)


def _cuda_device(torch: ModuleType | Any, ordinal: int) -> CudaDevice:
    uuid = str(torch.cuda.get_device_properties(ordinal).uuid)
    if torch.cuda.memory_reserved(ordinal) == 0:
        return CudaDevice(uuid)
    free, total = torch.cuda.mem_get_info(ordinal)
    return CudaDevice(uuid, int(free), int(total))


def _narrowed(gpu: GpuMemoryInfo, cuda: CudaDevice) -> GpuMemoryInfo:
    if gpu.total_bytes is None or gpu.free_bytes is None:
        return gpu
    if cuda.total_bytes is None or cuda.free_bytes is None or cuda.total_bytes >= gpu.total_bytes:
        return gpu
    free = min(gpu.free_bytes, cuda.free_bytes)
    return replace(gpu, used_bytes=cuda.total_bytes - free, free_bytes=free, total_bytes=cuda.total_bytes)


def _plain(uuid: str) -> str:
    """NVML writes `GPU-` or `MIG-` before it."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()
