"""The visible NVIDIA devices through NVML, which is handed in: this module imports neither it nor torch.

A sensor that does not exist is None; a device that was lost stays in the list with `error` set. Which devices
a container may use at all (NVIDIA_VISIBLE_DEVICES) is the container runtime's doing: NVML does not show the
others, or does not let us open them.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hf_transformers_backend.gpu import GpuMemoryInfo


@dataclass(frozen=True, slots=True)
class _Device:
    """A device as CUDA counts it: a whole GPU or one MIG instance; `handle` is None when it was lost."""

    handle: Any
    uuid: str | None
    is_mig: bool = False
    error: str | None = None


class NvmlProbe:
    """Reads the visible NVIDIA devices. Initializes NVML once and again after a failure; thread-safe."""

    def __init__(self, nvml: ModuleType | Any, environ: Mapping[str, str]) -> None:
        self._nvml = nvml
        self._environ = environ
        self._lock = threading.Lock()
        self._ready = False

    def read(self) -> list[GpuMemoryInfo] | None:
        """All visible devices; None without a driver. Raises NVMLError when the driver itself fails."""
        with self._lock:
            try:
                if not self._ready:
                    self._nvml.nvmlInit()
                    self._ready = True
                devices = select_visible(self._environ.get("CUDA_VISIBLE_DEVICES"), self._devices())
                return [self._describe(gpu_id, device) for gpu_id, device in enumerate(devices)]
            except self._nvml.NVMLError as error:
                if self._ready:
                    self._ready = False
                    with contextlib.suppress(self._nvml.NVMLError):
                        self._nvml.nvmlShutdown()
                if error.value in (
                    self._nvml.NVML_ERROR_LIBRARY_NOT_FOUND,
                    self._nvml.NVML_ERROR_DRIVER_NOT_LOADED,
                ):
                    return None
                raise

    def driver_version(self) -> str | None:
        """The NVIDIA driver's version, or None."""
        with self._lock:
            return self._sensor(self._nvml.nvmlSystemGetDriverVersion) if self._ready else None

    def _devices(self) -> list[list[_Device]]:
        """One list per GPU: the GPU itself, or its MIG instances when it is split.

        A GPU that we may not open is not there: CUDA does not count it either.
        """
        found = []
        for index in range(self._nvml.nvmlDeviceGetCount()):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            except self._nvml.NVMLError as error:
                if error.value != self._nvml.NVML_ERROR_NO_PERMISSION:
                    found.append([_Device(None, None, error=str(error))])
            else:
                found.append(list(self._parts(handle)))
        return found

    def _parts(self, handle: Any) -> Iterator[_Device]:
        mode = self._sensor(self._nvml.nvmlDeviceGetMigMode, handle)
        if not mode or mode[0] != self._nvml.NVML_DEVICE_MIG_ENABLE:
            yield _Device(handle, self._sensor(self._nvml.nvmlDeviceGetUUID, handle))
            return
        for number in range(self._sensor(self._nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            instance = self._sensor(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if instance is not None:
                yield _Device(instance, self._sensor(self._nvml.nvmlDeviceGetUUID, instance), is_mig=True)

    def _describe(self, gpu_id: int, device: _Device) -> GpuMemoryInfo:
        nvml, handle = self._nvml, device.handle
        if handle is None:
            return GpuMemoryInfo(gpu_id, error=device.error)
        name = self._sensor(nvml.nvmlDeviceGetName, handle)
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            return GpuMemoryInfo(gpu_id, uuid=device.uuid, name=name, is_mig=device.is_mig, error=str(error))
        utilization = self._sensor(nvml.nvmlDeviceGetUtilizationRates, handle)
        temperature = self._sensor(nvml.nvmlDeviceGetTemperatureV, handle, nvml.NVML_TEMPERATURE_GPU)
        if temperature is None:  # drivers before 570 know only the older call
            temperature = self._sensor(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
        milliwatts = self._sensor(nvml.nvmlDeviceGetPowerUsage, handle)
        return GpuMemoryInfo(
            gpu_id,
            used_bytes=int(memory.used),
            free_bytes=int(memory.free),
            total_bytes=int(memory.total),
            gpu_utilization_percentage=None if utilization is None else float(utilization.gpu),
            temperature_celsius=None if temperature is None else float(temperature),
            power_watts=None if milliwatts is None else round(milliwatts / 1000.0, 1),
            uuid=device.uuid,
            name=name,
            is_mig=device.is_mig,
        )

    def _sensor(self, read: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return read(*arguments)
        except self._nvml.NVMLError:
            return None


def select_visible(setting: str | None, gpus: list[list[_Device]]) -> list[_Device]:
    """What CUDA_VISIBLE_DEVICES leaves of `gpus`, in its order.

    As CUDA reads it: unset is everything; indices, `GPU-` and `MIG-` UUIDs (a unique beginning suffices); the
    first entry that names nothing ends the list; a repeated device empties it. Indices count in PCI order.
    """
    everything = [part for parts in gpus for part in parts]
    if setting is None:
        return everything
    chosen: list[_Device] = []
    for entry in (part.strip() for part in setting.split(",")):
        if entry.isdecimal():
            named = gpus[int(entry)] if int(entry) < len(gpus) else []
        else:
            named = [part for part in everything if entry and part.uuid and part.uuid.startswith(entry)]
            named = named if len(named) == 1 else []
        if not named:
            break
        if any(part is other for part in named for other in chosen):
            return []
        chosen.extend(named)
    return chosen
