"""What one model is on one pod. Pure; times are seconds of the epoch."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from flexserv_operator.backoff import COOL_DOWN, NOT_FAILURES, Attempt, reason_of
from flexserv_operator.desired import Claim, Desired
from flexserv_operator.inventory import Eviction, Inventory, Resident
from flexserv_operator.tallies import Tally

State = Literal["Pending", "Loading", "Loaded", "Standby", "Evicted", "Failed", "Unreachable"]

STARTING = "BackendStarting"


@dataclass(frozen=True)
class Replica:
    """One model on one pod, for status. `resident` says whether requests are answered from memory there."""

    state: State
    reason: str
    message: str = ""
    resident: bool = False
    commit: str | None = None
    eviction: Eviction | None = None

    @property
    def starting(self) -> bool:
        """The pod cannot be asked yet."""
        return self.reason == STARTING

    @property
    def settled(self) -> bool:
        """Nothing more is going to happen soon."""
        return self.state in ("Loaded", "Standby", "Failed", "Evicted")


def unreachable(reason: str, message: str) -> Replica:
    """A model on a pod that tells nothing."""
    return Replica("Unreachable", reason, message)


def look(
    claim: Claim,
    desired: Desired,
    inventory: Inventory,
    attempt: Attempt | None,
    now: float,
    *,
    leaving: bool,
    died: bool,
    pressed: Tally | None,
    applied: bool,
    refusal: tuple[str, str] | None = None,
) -> Replica:
    """What the model is on this pod, before the plan is carried out.

    `pressed` is how often memory pressure took it, `refusal` (reason, message) is why its settings are not
    taken there.
    """
    identity = claim.identity
    resident, load = inventory.residents.get(identity), inventory.loads.get(identity)
    eviction = inventory.evictions.get(identity)
    if eviction and eviction.reason == "memory" and pressed:
        eviction = eviction.model_copy(update={"count": pressed.count})
    commit = resident.commit if resident else None
    if (
        resident
        and not leaving
        and refusal is None
        and (applied or not claim.pinned or not _differs(claim, resident))
    ):
        return Replica("Loaded", "Loaded", "", True, commit, eviction)

    def as_it_is(state: State, reason: str, message: str) -> Replica:
        return Replica(state, reason, message, resident is not None and not leaving, commit, eviction)

    if refusal is not None:
        return as_it_is("Failed", *refusal)
    if load and not leaving:
        return as_it_is("Loading", "Loading", load.progress)
    record = desired.blocked(identity, now)
    if record or died:
        until = f", tried again {_clock(record.until)}" if record else ""
        reason = record.reason if record else "CrashedWhileLoading"
        return as_it_is("Failed", reason, f"a container died while loading this model{until}")
    if not claim.pinned and identity in inventory.crashed:
        # Only a load by order ends what the backend itself holds against the model.
        return as_it_is("Pending", "Queued", "tried once after its quarantine")
    if not claim.pinned:
        failure = inventory.failures.get(identity)
        if failure and failure.code not in NOT_FAILURES | {"insufficient_memory"}:
            return as_it_is("Failed", reason_of(failure.code), failure.message)
        return as_it_is("Standby", "Standby", "the next request loads it")
    cooled = (
        eviction.at + COOL_DOWN.wait(max(eviction.count, 1))
        if eviction and eviction.reason == "memory"
        else 0
    )
    if cooled > now or (cooled and inventory.pressure):
        until = f"tried again {_clock(cooled)}" if cooled > now else "waits until the pressure ends"
        return as_it_is("Evicted", "EvictedMemory", f"evicted under memory pressure, {until}")
    if attempt is not None and attempt.waits(now):
        message = f"{attempt.message}, tried again {_clock(attempt.retry_at)}"
        if attempt.reason == "Displaced":
            return as_it_is("Evicted", "Displaced", message)
        if cooled and attempt.code == "insufficient_memory":
            return as_it_is("Evicted", "EvictedMemory", message)
        return as_it_is("Failed", attempt.reason, message)
    return as_it_is("Pending", "Queued", "waits for its turn on this pod")


def _differs(claim: Claim, resident: Resident) -> bool:
    """Whether the model in memory was loaded with other load-time settings than those asked for."""
    requested = resident.requested_settings
    if requested is not None:
        return {key: value for key, value in requested.items() if value is not None} != claim.load_settings
    settings = resident.settings or {}
    return any(
        key in settings and (settings[key] or "none") != (value or "none")
        for key, value in claim.load_settings.items()
        if value != "auto"
    )


def _clock(at: float) -> str:
    """A time of day that does not change from cycle to cycle, so that it causes no writes."""
    return datetime.fromtimestamp(at, UTC).strftime("at %H:%M:%S UTC")
