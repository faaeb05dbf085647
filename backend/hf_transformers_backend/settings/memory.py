"""How much memory models may take, and when and how the memory monitor acts."""

from pydantic import Field
from pydantic_settings import BaseSettings

from hf_transformers_backend.settings.kinds import LONGEST_SECONDS, EvictionPolicy


class MemorySettings(BaseSettings):
    """Limits for models in memory, and the monitor."""

    oom_monitor: bool = Field(False, description="Watch memory and evict models when a threshold is reached.")
    oom_ram_threshold: float = Field(
        90.0,
        ge=0,
        le=100,
        description="RAM use in percent (0-100) at which the monitor evicts; no load may go beyond it.",
    )
    oom_vram_threshold: float = Field(
        90.0,
        ge=0,
        le=100,
        description="VRAM use in percent (0-100) at which the monitor evicts; no load may go beyond it.",
    )
    oom_check_interval: float = Field(
        30, gt=0, le=LONGEST_SECONDS, description="Seconds between two looks of the monitor."
    )
    oom_eviction: EvictionPolicy = Field(
        "lru",
        description="Whom the monitor evicts: lru (idle models, least recently used first, no more than"
        " needed) or all (every model at once; one in use goes with its last request).",
    )
    max_loaded_models: int = Field(
        0,
        ge=0,
        description="Models in memory at once; one more makes an idle one go that is not pinned, or is"
        " refused with 507; one that is loaded anew beside its last requests counts once."
        " 0 = as many as fit.",
    )
