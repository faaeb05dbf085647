"""What residency shows of itself: immutable copies that any thread may read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.model_settings import LoadSettings

EvictionReason = Literal["idle", "manual", "memory", "room", "replaced", "shutdown"]
Stage = Literal["queued", "download", "weights"]
CatalogStatus = Literal["loaded", "loading", "unloaded"]

LOAD_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Seconds."""


@dataclass(frozen=True, slots=True)
class ResidentView:
    """A model in memory. `devices` gives the bytes per torch device; times are epoch seconds. `asked` are the
    load-time settings that were asked for by name, `settings` those in force.
    """

    identity: ModelIdentity
    label: str
    served_name: str | None
    owner: str | None
    default: bool
    pinned: bool
    priority: int
    bytes: int
    devices: Mapping[str, int]
    commit: str | None
    settings: LoadSettings
    asked: Mapping[str, Any]
    loaded_at: float
    last_used_at: float
    expires_at: float | None
    idle_timeout_seconds: float
    active_requests: int


@dataclass(frozen=True, slots=True)
class LoadingView:
    """A load that is queued or under way. `done` and `total` count bytes or weights, whatever the stage
    counts.
    """

    identity: ModelIdentity
    label: str
    owner: str | None
    load_id: str
    stage: Stage
    done: int
    total: int | None
    started_at: float | None
    stage_since: float


@dataclass(frozen=True, slots=True)
class FailedView:
    """How the last load of an identity failed; gone with its next load."""

    identity: ModelIdentity
    load_id: str
    code: str
    message: str
    needed_bytes: int | None
    available_bytes: int | None
    at: float


@dataclass(frozen=True, slots=True)
class EvictionView:
    """The last time that an identity left memory. `seq` grows with every eviction of this process."""

    identity: ModelIdentity
    reason: EvictionReason
    seq: int
    at: float
    count: int


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """How long loads took, as a histogram: `counts` of those up to each of LOAD_BOUNDS, and of all."""

    counts: tuple[int, ...] = (0,) * (len(LOAD_BOUNDS) + 1)
    total_seconds: float = 0.0

    def plus(self, seconds: float) -> "LoadTimes":
        """With one more load."""
        bounds = (*LOAD_BOUNDS, float("inf"))
        counts = [count + (seconds <= bound) for count, bound in zip(self.counts, bounds, strict=True)]
        return LoadTimes(tuple(counts), self.total_seconds + seconds)


@dataclass(frozen=True, slots=True)
class ResidencySnapshot:
    """One consistent look at everything."""

    models: tuple[ResidentView, ...]
    unloading: tuple[ResidentView, ...]
    loading: tuple[LoadingView, ...]
    failed: tuple[FailedView, ...]
    last_evictions: tuple[EvictionView, ...]
    evictions: Mapping[EvictionReason, int]
    loads: Mapping[Literal["loaded", "failed", "aborted"], int]
    load_times: LoadTimes
    declared_labels: frozenset[str]
    declared_hash: str | None
    synced: bool
    pressure: Pressure | None


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """`freed` is false when the model was not here, or when a request still holds it."""

    freed: bool
    had_active_requests: bool


@dataclass(frozen=True, slots=True)
class Unloaded:
    """What an unload did to one model."""

    identity: ModelIdentity
    was_loaded: bool
    was_loading: bool
    had_active_requests: bool


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A model that a client may name. `created` is in epoch seconds, 0 if unknown."""

    name: str
    status: CatalogStatus
    owned_by: str
    created: int
