"""What the management routes answer, but for the inventory."""

from typing import Literal

from pydantic import AwareDatetime, Field, JsonValue

from hf_transformers_backend.identity import Kind
from hf_transformers_backend.schemas.answers import Answer


class Liveness(Answer):
    """failed = a fault that only a restart ends."""

    status: Literal["ok", "failed"]
    reason: str | None = None


class EmbeddingModelStatus(Answer):
    model_id: str | None
    status: Literal["not_loaded", "loading", "loaded", "failed"]


class Readiness(Answer):
    """Whether this process should get traffic, and who it is."""

    status: Literal["ok", "starting", "draining", "failed"]
    model: str | None = Field(
        description="The default model, else the one in memory that was used last; null without either."
    )
    model_status: Literal["not_loaded", "loading", "loaded", "failed"] = Field(
        description="Of `model`; without one, not_loaded."
    )
    embedding_model: EmbeddingModelStatus
    device: str
    dtype: str
    active_requests: int
    instance_id: str
    pod_uid: str | None
    started_at: AwareDatetime
    fault: str | None


class GpuFacts(Answer):
    """One visible GPU; what it cannot measure is left out. Sizes are in GiB."""

    gpu_id: int
    used_percentage: float | None = None
    used_gb: float | None = None
    free_gb: float | None = None
    total_gb: float | None = None
    gpu_utilization_percentage: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    error: str | None = None


class CpuFacts(Answer):
    cpu_id: int
    used_percentage: float


class MemoryFacts(Answer):
    """Sizes are in GiB."""

    used_percentage: float
    used_gb: float
    free_gb: float
    total_gb: float


class Resources(Answer):
    """The machine now; `container` where a limit below the machine's memory binds."""

    gpu: list[GpuFacts]
    cpu: list[CpuFacts]
    memory: MemoryFacts
    container: MemoryFacts | None = None


class Info(Answer):
    """Versions, settings in force (secrets masked), devices."""

    name: Literal["flexserv-backend"]
    version: str
    python: str
    libraries: dict[str, str | None]
    instance_id: str
    pod_uid: str | None
    started_at: AwareDatetime
    settings: dict[str, JsonValue]
    access: Literal["none", "user", "admin"] = Field(description="What the token of this request allows.")
    device: str
    devices: list[GpuFacts]


class IdentityAnswer(Answer):
    """Which model: id, kind, and the revision as asked (null = the default one)."""

    model_id: str
    kind: Kind
    revision: str | None


class LoadAnswer(IdentityAnswer):
    """200 = in memory, 202 = under way; the inventory has the progress."""

    status: Literal["already_loaded", "loaded", "loading"]
    load_id: str | None = None
    stage: Literal["queued", "download", "weights"] | None = None
    done: int | None = None
    total: int | None = None


class UnloadedModel(Answer):
    model_id: str
    kind: Kind | None
    revision: str | None
    was_loaded: bool
    was_loading: bool
    had_active_requests: bool


class UnloadAnswer(Answer):
    """What went."""

    unloaded: list[UnloadedModel]
    warnings: list[str]
    active_requests_at_eviction: int
    oom_triggered: bool


class DeclaredAnswer(Answer):
    status: Literal["ok"]
    declared: int
    hash: str


class Done(Answer):
    status: Literal["ok"]


class LoadProgress(Answer):
    current: int
    total: int | None


class LoadEvent(Answer):
    """One event of POST /load_model; `ready` or `error` is the last."""

    status: Literal["loading", "ready", "error"]
    model: str
    stage: str | None = None
    progress: LoadProgress | None = None
    cached: bool | None = None
    message: str | None = None
    code: str | None = None
