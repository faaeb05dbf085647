"""What the routes are given: the parts of one running server."""

from dataclasses import dataclass

from hf_transformers_backend.access import AccessPolicy
from hf_transformers_backend.activity import ActivityTracker
from hf_transformers_backend.device_fault import DeviceHealth
from hf_transformers_backend.generation.image_fetch import ImageFetcher
from hf_transformers_backend.lifecycle import Lifecycle
from hf_transformers_backend.memory_monitor import MemoryMonitor
from hf_transformers_backend.metrics import Metrics
from hf_transformers_backend.residency import Residency
from hf_transformers_backend.settings import Settings


@dataclass(frozen=True, slots=True)
class Backend:
    """Made once by `build_app`. `monitor` is None without --oom-monitor."""

    settings: Settings
    residency: Residency
    activity: ActivityTracker
    metrics: Metrics
    lifecycle: Lifecycle
    access: AccessPolicy
    health: DeviceHealth
    images: ImageFetcher
    monitor: MemoryMonitor | None
