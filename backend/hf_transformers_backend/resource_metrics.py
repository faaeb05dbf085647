"""Memory, CPU and GPU facts: the single source for the resources endpoint, metrics, admission and monitor.

Five functions and four types. Bytes first: `*_gb` is GiB rounded to 0.1, a percentage is used / total, free
means available, used means total less available. Nothing here decides anything. The only importer of psutil
and pynvml; the parts (cgroup, gpu, cpu) get their sources from here.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import psutil
import pynvml

from hf_transformers_backend.cgroup import ContainerMemory, read_container_memory
from hf_transformers_backend.cpu import CoreTimes, CpuCoreInfo, CpuSampler
from hf_transformers_backend.gpu import GpuMemoryInfo, as_cuda_sees, read_cuda, read_mps
from hf_transformers_backend.nvml import NvmlProbe
from hf_transformers_backend.sensor import Sensor, SensorSilent
from hf_transformers_backend.units import gibibytes, percentage

__all__ = [
    "CpuCoreInfo",
    "GpuMemoryInfo",
    "GpuProbeError",
    "Machine",
    "RamInfo",
    "SystemResourceSnapshot",
    "get_cpu_info",
    "get_gpu_info",
    "get_gpu_info_in_time",
    "get_max_vram_used_pct",
    "get_ram_info",
    "get_system_resources",
    "machine",
]

log = logging.getLogger(__name__)

CPU_WINDOW_SECONDS = 0.2
GPU_PATIENCE_SECONDS = 2.0


class GpuProbeError(RuntimeError):
    """The NVIDIA driver is there and does not work; the message is the driver's."""


@dataclass(frozen=True, slots=True)
class RamInfo:
    """The node's memory, and beside it the container's when a cgroup limit below the node's total binds."""

    used_bytes: int
    available_bytes: int
    total_bytes: int
    container: ContainerMemory | None = None

    @property
    def used_percentage(self) -> float:
        return percentage(self.used_bytes, self.total_bytes)

    @property
    def used_gb(self) -> float:
        return gibibytes(self.used_bytes)

    @property
    def free_gb(self) -> float:
        return gibibytes(self.available_bytes)

    @property
    def total_gb(self) -> float:
        return gibibytes(self.total_bytes)

    @property
    def scope(self) -> Literal["container", "node"]:
        """Whose memory decisions are made with."""
        return "node" if self.container is None else "container"

    @property
    def decisive_used_bytes(self) -> int:
        """What is used of the memory that `scope` names; of a container, what cannot be reclaimed."""
        return self.used_bytes if self.container is None else self.container.unreclaimable_bytes

    @property
    def decisive_total_bytes(self) -> int:
        """The size, or the limit, of the memory that `scope` names."""
        return self.total_bytes if self.container is None else self.container.limit_bytes

    def to_dict(self) -> dict[str, float]:
        """The specification's `memory` object (the node)."""
        return _memory_dict(self.used_bytes, self.available_bytes, self.total_bytes)


@dataclass(frozen=True, slots=True)
class SystemResourceSnapshot:
    """Everything at one moment."""

    ram: RamInfo
    cpu: list[CpuCoreInfo]
    gpu: list[GpuMemoryInfo]

    def to_dict(self) -> dict[str, Any]:
        """The body of the resources endpoint; `container` only where a limit binds."""
        body: dict[str, Any] = {
            "gpu": [gpu.to_dict() for gpu in self.gpu],
            "cpu": [core.to_dict() for core in self.cpu],
            "memory": self.ram.to_dict(),
        }
        if (container := self.ram.container) is not None:
            body["container"] = _memory_dict(
                container.unreclaimable_bytes, container.available_bytes, container.limit_bytes
            )
        return body


class Machine:
    """The sources of the facts; the defaults are the real ones. Thread-safe.

    `root` is where /proc/self and /sys/fs/cgroup are looked for; `torch` gives the module if it may be asked
    about Apple's GPU, `cuda` if it may be asked about NVIDIA's.
    """

    def __init__(
        self,
        *,
        root: Path = Path("/"),
        virtual_memory: Callable[[], Any] = psutil.virtual_memory,
        cpu_times: Callable[[], list[CoreTimes]] | None = None,
        nvml: ModuleType | Any = pynvml,
        environ: Mapping[str, str] = os.environ,
        torch: Callable[[], ModuleType | None] | None = None,
        cuda: Callable[[], ModuleType | Any | None] = lambda: sys.modules.get("torch"),
    ) -> None:
        self._root = root
        self._virtual_memory = virtual_memory
        self._nvml_error: type[Exception] = nvml.NVMLError
        self._nvml = NvmlProbe(nvml, environ)
        self._torch = torch or _torch_on_apple
        self._cuda = cuda
        self.cpu_sampler = CpuSampler(cpu_times or _core_times)

    def read_ram(self) -> RamInfo:
        memory = self._virtual_memory()
        total, available = int(memory.total), int(memory.available)
        return RamInfo(total - available, available, total, read_container_memory(total, self._root))

    def read_gpus(self) -> list[GpuMemoryInfo]:
        """All visible devices, lost ones with their error. Raises GpuProbeError when the driver fails."""
        try:
            devices = self._nvml.read()
        except self._nvml_error as error:
            raise GpuProbeError(f"NVML: {error}") from error
        if devices is not None:
            cuda = self._cuda() if devices else None
            return devices if cuda is None else as_cuda_sees(devices, read_cuda(cuda))
        torch = self._torch()
        return [] if torch is None else read_mps(torch)

    def driver_version(self) -> str | None:
        """Of the NVIDIA driver; None before the first reading and where there is none."""
        return self._nvml.driver_version()


def get_ram_info() -> RamInfo:
    """System memory, and the container's."""
    return machine.read_ram()


def get_cpu_info(interval: float = CPU_WINDOW_SECONDS) -> list[CpuCoreInfo]:
    """Usage per logical core over `interval` seconds. Blocks that long; not for an event loop or a scrape."""
    return machine.cpu_sampler.measure(interval)


def get_gpu_info() -> list[GpuMemoryInfo]:
    """The visible GPUs; empty where there are none or the driver does not answer (which is logged)."""
    try:
        return machine.read_gpus()
    except GpuProbeError as error:
        log.warning("GPU memory cannot be read: %s", error)
        return []


def get_gpu_info_in_time() -> list[GpuMemoryInfo]:
    """As `get_gpu_info`, and empty too when the driver hangs: who merely shows it does not hang with it."""
    try:
        return _shown_gpus.wait(_shown_gpus.begin())
    except SensorSilent as silence:
        log.warning("%s", silence)
        return []


def get_max_vram_used_pct() -> float:
    """The fullest visible GPU, in percent; 0.0 when there is none."""
    return max(
        (gpu.used_percentage for gpu in get_gpu_info() if gpu.used_percentage is not None), default=0.0
    )


def get_system_resources(cpu_interval: float = CPU_WINDOW_SECONDS) -> SystemResourceSnapshot:
    """Memory, CPU and GPUs. Blocks for `cpu_interval` seconds."""
    cpu = get_cpu_info(cpu_interval)
    return SystemResourceSnapshot(get_ram_info(), cpu, get_gpu_info_in_time())


def _memory_dict(used: int, free: int, total: int) -> dict[str, float]:
    return {
        "used_percentage": percentage(used, total),
        "used_gb": gibibytes(used),
        "free_gb": gibibytes(free),
        "total_gb": gibibytes(total),
    }


def _core_times() -> list[CoreTimes]:
    times = []
    for core in psutil.cpu_times(percpu=True):
        # `guest` is already part of `user`; waiting for a disk is idle.
        total = sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0)
        times.append(CoreTimes(total - core.idle - getattr(core, "iowait", 0.0), total))
    return times


def _torch_on_apple() -> ModuleType | None:
    if sys.platform != "darwin":
        return None
    import torch

    return torch


machine = Machine()
"""The real one, which the five functions read."""
_shown_gpus: Sensor[list[GpuMemoryInfo]] = Sensor("GPUs", lambda: get_gpu_info(), GPU_PATIENCE_SECONDS)
