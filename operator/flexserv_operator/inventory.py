"""What a backend pod says about itself: the answer of GET /v1/flexserv/models/loaded, checked.

Fields that the operator does not use are ignored, so that a newer backend can say more.
"""

from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

Kind = Literal["serve", "embedding"]
_TIMES = TypeAdapter(AwareDatetime)


def _seconds(value: Any) -> Any:
    """RFC 3339 as seconds of the epoch; a number is that already."""
    try:
        return _TIMES.validate_python(value).timestamp() if isinstance(value, str) else value
    except OverflowError as error:
        raise ValueError("no such time") from error


Timestamp = Annotated[float, BeforeValidator(_seconds), Field(ge=0, lt=253_402_300_800, allow_inf_nan=False)]
"""A point in time up to the year 9999, in seconds of the epoch."""

Bytes = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Tally = Annotated[int, Field(ge=0, lt=2**31)]


class Identity(NamedTuple):
    """One model: its kind, its id, and the revision as asked (None = the default branch)."""

    kind: Kind
    model_id: str
    revision: str | None

    def __str__(self) -> str:
        return self.model_id if self.revision is None else f"{self.model_id}@{self.revision}"


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class Named(_Answer):
    """Anything in the inventory that is about one model."""

    model_id: str = Field(min_length=1)
    kind: Kind
    revision: str | None = None

    @property
    def identity(self) -> Identity:
        return Identity(self.kind, self.model_id, self.revision)


class Resident(Named):
    """A model in memory. `bytes` is what its unload would free."""

    commit: str | None = None
    owner: str | None = None
    default: bool = False
    bytes: Bytes | None = None
    settings: dict[str, Any] | None = None
    """The load-time settings in force."""
    requested_settings: dict[str, Any] | None = None
    """Those of them that were asked for by name; None from a backend that does not tell."""
    last_used_at: Timestamp | None = None


class Loading(Named):
    """A load that is queued or runs. `started_at` is the start of its work, not of its wait."""

    owner: str | None = None
    load_id: str
    stage: Literal["queued", "download", "weights"]
    done: Amount | None = None
    total: Amount | None = None
    started_at: Timestamp | None = None

    @property
    def progress(self) -> str:
        """The stage, with a percentage where the total is known."""
        if self.stage != "queued" and self.done is not None and self.total:
            return f"{self.stage} {min(self.done / self.total, 1):.0%}"
        return self.stage


class Failure(Named):
    """The last load of a model, which failed. The two sizes come with insufficient_memory and _storage."""

    load_id: str
    code: str
    message: str = ""
    needed_bytes: Bytes | None = None
    available_bytes: Bytes | None = None
    at: Timestamp


class Eviction(Named):
    """The last time that a model left memory. `count` says how often it did so in this instance."""

    reason: Literal["idle", "manual", "memory", "room", "replaced", "shutdown"]
    seq: int
    at: Timestamp
    count: Tally = 1


class Pressure(_Answer):
    """Memory is short. With `refuses_work` the backend takes no load."""

    refuses_work: bool = False


class Inventory(_Answer):
    """One pod's whole answer."""

    instance_id: str = Field(min_length=1)
    pod_uid: str | None = None
    synced: bool
    declared_hash: str | None = None
    models: tuple[Resident, ...]
    loading: tuple[Loading, ...] = ()
    failed: tuple[Failure, ...] = ()
    crashed_loading: tuple[Named, ...] = ()
    last_evictions: tuple[Eviction, ...] = ()
    pressure: Pressure | None = None
    """None while memory is fine."""

    @cached_property
    def residents(self) -> dict[Identity, Resident]:
        return {model.identity: model for model in self.models}

    @cached_property
    def loads(self) -> dict[Identity, Loading]:
        return {load.identity: load for load in self.loading}

    @cached_property
    def failures(self) -> dict[Identity, Failure]:
        return {failure.identity: failure for failure in self.failed}

    @cached_property
    def evictions(self) -> dict[Identity, Eviction]:
        return {eviction.identity: eviction for eviction in self.last_evictions}

    @cached_property
    def crashed(self) -> frozenset[Identity]:
        return frozenset(named.identity for named in self.crashed_loading)
