"""GET /v1/flexserv/models/loaded: all that the operator needs in one answer."""

from typing import Literal

from pydantic import AwareDatetime, Field

from hf_transformers_backend.schemas.answers import Answer
from hf_transformers_backend.schemas.management import IdentityAnswer


class LoadSettingsAnswer(Answer):
    """How the weights were loaded."""

    dtype: str
    quantization: str | None
    attn_implementation: str | None
    trust_remote_code: bool


class ResidentModel(IdentityAnswer):
    """A model in memory."""

    commit: str | None
    served_name: str | None
    owner: str | None
    default: bool
    pinned: bool
    priority: int
    bytes: int
    settings: LoadSettingsAnswer
    requested_settings: dict[str, str | bool] = Field(
        description="Those that were asked for by name; the others are the server's own."
    )
    loaded_at: AwareDatetime
    last_used_at: AwareDatetime
    expires_at: AwareDatetime | None
    idle_timeout_seconds: float | None
    active_requests: int


class LoadingModel(IdentityAnswer):
    """A load that waits or runs; `done` and `total` are bytes, or weights, of its stage."""

    owner: str | None
    load_id: str
    stage: Literal["queued", "download", "weights"]
    done: int
    total: int | None
    started_at: AwareDatetime | None
    stage_since: AwareDatetime


class FailedLoad(IdentityAnswer):
    """Why a model's last load failed."""

    load_id: str
    code: str | None
    message: str
    needed_bytes: int | None
    available_bytes: int | None
    at: AwareDatetime


class EvictedModel(IdentityAnswer):
    """Why a model went, the last time."""

    reason: Literal["idle", "manual", "memory", "room", "replaced", "shutdown"]
    seq: int
    at: AwareDatetime
    count: int


class PressureAnswer(Answer):
    """Memory is short; with `refuses_work` new work gets 503 memory_pressure."""

    resource: Literal["ram", "vram"]
    device: str
    scope: Literal["container", "node", "device"]
    origin: Literal["own", "external"]
    used_ratio: float
    threshold_ratio: float
    refuses_work: bool


class Inventory(Answer):
    """What is resident, loading, failed, evicted and why."""

    instance_id: str
    pod_uid: str | None
    synced: bool
    declared_hash: str | None
    models: list[ResidentModel]
    unloading: list[ResidentModel] = Field(description="In use, and on their way out.")
    loading: list[LoadingModel]
    failed: list[FailedLoad]
    crashed_loading: list[IdentityAnswer] = Field(
        description="Loads that killed the process before this one; only POST load tries them again."
    )
    last_evictions: list[EvictedModel]
    pressure: PressureAnswer | None
