"""The memory that the next load would land in, measured now."""

from hf_transformers_backend.admission import Room
from hf_transformers_backend.resource_metrics import get_gpu_info, get_ram_info
from hf_transformers_backend.settings import Settings


def measure_room(settings: Settings) -> Room | None:
    """RAM for a CPU server, else the visible GPUs (or the one that --device names). None if unknown."""
    gpus = [] if settings.device == "cpu" else [gpu for gpu in get_gpu_info() if gpu.total_bytes]
    number = settings.device.rpartition(":")[2]
    if number.isdigit():
        gpus = [gpu for gpu in gpus if gpu.gpu_id == int(number)]
    if gpus:
        return Room(
            device=gpus[0].device if len(gpus) == 1 else gpus[0].device.partition(":")[0],
            free_bytes=sum(gpu.free_bytes or 0 for gpu in gpus),
            used_bytes=sum(gpu.used_bytes or 0 for gpu in gpus),
            total_bytes=sum(gpu.total_bytes or 0 for gpu in gpus),
            threshold_ratio=settings.oom_vram_threshold / 100 if settings.oom_monitor else None,
        )
    if settings.device not in ("cpu", "auto"):
        return None
    ram = get_ram_info()
    free = ram.decisive_total_bytes - ram.decisive_used_bytes
    return Room(
        device="cpu",
        free_bytes=min(free, ram.available_bytes),
        used_bytes=ram.decisive_used_bytes,
        total_bytes=ram.decisive_total_bytes,
        threshold_ratio=settings.oom_ram_threshold / 100 if settings.oom_monitor else None,
    )
