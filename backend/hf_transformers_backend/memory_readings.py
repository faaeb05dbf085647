"""What the memory monitor looks at: RAM, and the visible GPUs, against their thresholds."""

from hf_transformers_backend import resource_metrics
from hf_transformers_backend.eviction import Reading
from hf_transformers_backend.settings import Settings


def read_memory(settings: Settings, watch_vram: bool) -> list[Reading]:
    """The machine against the thresholds.

    GPUs that do not answer are left out. So is Apple's: its ratio is of what the driver gave so far, and not
    of a memory that can run full.
    """
    ram = resource_metrics.get_ram_info()
    readings = [
        Reading(
            "ram",
            "cpu",
            ram.scope,
            ram.decisive_used_bytes,
            ram.decisive_total_bytes,
            settings.oom_ram_threshold / 100.0,
        )
    ]
    if watch_vram:
        readings += [
            Reading(
                "vram",
                gpu.device,
                "device",
                gpu.used_bytes,
                gpu.total_bytes,
                settings.oom_vram_threshold / 100.0,
            )
            for gpu in resource_metrics.get_gpu_info()
            if gpu.backend == "cuda" and gpu.used_bytes is not None and gpu.total_bytes is not None
        ]
    return readings
