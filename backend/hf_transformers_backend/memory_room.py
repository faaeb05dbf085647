"""The memories that the next load may use, measured now."""

from collections.abc import Sequence

from hf_transformers_backend.admission import Room
from hf_transformers_backend.identity import Kind
from hf_transformers_backend.resource_metrics import GpuMemoryInfo, get_gpu_info, get_ram_info
from hf_transformers_backend.settings import Settings


def measure_rooms(settings: Settings, device: str, kind: Kind) -> list[Room]:
    """What a model of this kind may be put into where `device`, as torch names it, is asked for.

    `auto` spreads a generative model over all visible GPUs; an encoder is never spread. Empty if unknown.
    """
    if device in ("cpu", "mps"):
        return [_ram(settings, device)]  # Apple's GPU has no memory of its own
    gpus = [gpu for gpu in get_gpu_info() if gpu.backend == "cuda"]
    if device != "auto" or kind == "embedding":
        wanted = "cuda:0" if device in ("auto", "cuda") else device
        gpus = [gpu for gpu in gpus if gpu.device == wanted]
    return _gpus(settings, gpus)


def _gpus(settings: Settings, gpus: Sequence[GpuMemoryInfo]) -> list[Room]:
    """A GPU that was lost has no numbers, and takes nothing."""
    return [
        Room(gpu.device, gpu.free_bytes, gpu.used_bytes, gpu.total_bytes, settings.oom_vram_threshold / 100)
        for gpu in gpus
        if gpu.free_bytes is not None and gpu.used_bytes is not None and gpu.total_bytes is not None
    ]


def _ram(settings: Settings, device: str) -> Room:
    ram = get_ram_info()
    free = ram.decisive_total_bytes - ram.decisive_used_bytes
    return Room(
        device,
        free_bytes=min(free, ram.available_bytes),
        used_bytes=ram.decisive_used_bytes,
        total_bytes=ram.decisive_total_bytes,
        threshold_ratio=settings.oom_ram_threshold / 100,
    )
