"""Does a load fit, and who must go for it: pure decisions over numbers.

What is free under the thresholds counts, on the devices that the load may use. A size that nothing tells is
admitted: refusing what would fit is worse than a load that fails by itself. Models make room only when they
are neither pinned nor in use, least recently used first, only if that is enough, and none that the others
make needless. The older self of a model that is loaded anew goes before all others. Memory that models on
their way out hold is waited for.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hf_transformers_backend.identity import ModelIdentity

LOAD_MARGIN_RATIO = 0.05
"""What a load takes beyond its weights: buffers, the allocator's rounding, the first activations."""


@dataclass(frozen=True, slots=True)
class Room:
    """One memory that a load may use. `threshold_ratio` of its total is the limit, or what is free."""

    device: str
    free_bytes: int
    used_bytes: int
    total_bytes: int
    threshold_ratio: float = 1.0

    @property
    def available_bytes(self) -> int:
        """Bytes that a load may take now."""
        return self.available_after(0)

    def available_after(self, freed_bytes: int) -> int:
        """Bytes that a load may take once `freed_bytes` are given back."""
        below = int(self.total_bytes * self.threshold_ratio) - self.used_bytes
        return max(min(self.free_bytes, below) + freed_bytes, 0)


Lacking = Literal["memory", "count"]
Stance = Literal["idle", "fixed", "replaced", "leaving"]
"""idle may make room. fixed may not: pinned or in use. replaced is the newcomer's older self, which goes
anyway. leaving is on its way out."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A model in memory as admission sees it, with its bytes per device."""

    identity: ModelIdentity
    held_bytes: Mapping[str, int]
    last_used_at: float
    stance: Stance = "idle"
    in_use: bool = False

    def on(self, device: str) -> int:
        """Bytes on `cuda:0`, or on all of `cuda`."""
        return sum(
            held for name, held in self.held_bytes.items() if name == device or name.startswith(f"{device}:")
        )


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision. `make_room` lists who goes first, in order; with `wait` that is at most the older self.

    A refusal, or a wait, is for want of `memory`, or because `count` models are the most that there may be.
    """

    verdict: Literal["admit", "wait", "refuse"]
    make_room: tuple[ModelIdentity, ...] = ()
    needed_bytes: int | None = None
    available_bytes: int | None = None
    lacking: Lacking | None = None


def with_margin(weights_bytes: int | None) -> int | None:
    """What a load of these weights takes in all."""
    return None if weights_bytes is None else int(weights_bytes * (1 + LOAD_MARGIN_RATIO))


def decide(
    needed_bytes: int | None, rooms: Sequence[Room], occupants: Sequence[Occupant], max_models: int = 0
) -> Admission:
    """Admit a load of `needed_bytes` into `rooms`, at once, or after others have left, or refuse it.

    Unknown `needed_bytes` or no `rooms` mean that memory is no question. `max_models` 0 is no cap.
    """
    demand = _Demand(needed_bytes, rooms, occupants, max_models)
    available = demand.available_after(())
    going: list[Occupant] = []
    for occupant in sorted(occupants, key=_order):
        lacking = demand.lacking_after(going)
        if lacking and occupant.stance != "fixed" and demand.helps(occupant, lacking):
            going.append(occupant)
    lacking = demand.lacking_after(going)
    if lacking:
        # What there would be without those that may go: who wants to make more room needs what is missing.
        return Admission("refuse", (), needed_bytes, demand.available_after(going), lacking[0])
    going = _without_needless(going, lambda fewer: not demand.lacking_after(fewer))
    if any(occupant.stance == "leaving" or occupant.in_use for occupant in going):
        replaced = tuple(one.identity for one in going if one.stance == "replaced")
        lacking = demand.lacking_after(())
        return Admission("wait", replaced, needed_bytes, available, lacking[0] if lacking else None)
    return Admission("admit", tuple(one.identity for one in going), needed_bytes, available)


def relief(
    needed_bytes: int | None, rooms: Sequence[Room], occupants: Sequence[Occupant]
) -> tuple[ModelIdentity, ...]:
    """Idle models to unload after memory ran out: as many as hold `needed_bytes`, all if that is unknown."""

    def held(occupant: Occupant) -> int:
        if not rooms:
            return sum(occupant.held_bytes.values())
        return sum(occupant.on(room.device) for room in rooms)

    def suffices(gone: Sequence[Occupant]) -> bool:
        return needed_bytes is not None and sum(map(held, gone)) >= needed_bytes

    going: list[Occupant] = []
    for occupant in sorted(occupants, key=_order):
        if occupant.stance == "idle" and held(occupant) and not suffices(going):
            going.append(occupant)
    return tuple(occupant.identity for occupant in _without_needless(going, suffices))


def _without_needless(
    going: Sequence[Occupant], suffices: Callable[[Sequence[Occupant]], bool]
) -> list[Occupant]:
    """Those without which the others do not suffice, in the same order; the last ones are spared first.

    A large one taken late can make a small one taken early needless.
    """
    kept = list(going)
    for occupant in reversed(going):
        others = [one for one in kept if one is not occupant]
        if suffices(others):
            kept = others
    return kept


@dataclass(frozen=True, slots=True)
class _Demand:
    needed_bytes: int | None
    rooms: Sequence[Room]
    occupants: Sequence[Occupant]
    max_models: int

    def available_after(self, gone: Sequence[Occupant]) -> int | None:
        """Accelerate gives each device the same share of a model which it spreads, the rest to the last."""
        if self.needed_bytes is None or not self.rooms:
            return None
        *shared, last = [
            room.available_after(sum(occupant.on(room.device) for occupant in gone)) for room in self.rooms
        ]
        share = -(-self.needed_bytes // len(self.rooms))
        return sum(min(available, share) for available in shared) + last

    def lacking_after(self, gone: Sequence[Occupant]) -> list[Lacking]:
        lacking: list[Lacking] = []
        staying = sum(one.stance != "replaced" for one in self.occupants if one not in gone)
        if self.max_models and staying >= self.max_models:
            lacking.append("count")
        available = self.available_after(gone)
        if available is not None and self.needed_bytes is not None and available < self.needed_bytes:
            lacking.append("memory")
        return lacking

    def helps(self, occupant: Occupant, lacking: Sequence[Lacking]) -> bool:
        if "count" in lacking and occupant.stance != "replaced":
            return True
        return "memory" in lacking and any(occupant.on(room.device) > 0 for room in self.rooms)


def _order(occupant: Occupant) -> tuple[int, float]:
    """Who goes first: what is coming back this moment anyway, the older self, idle ones, what needs patience.

    Least recently used first within each.
    """
    if occupant.stance == "leaving":
        return (3 if occupant.in_use else 0, occupant.last_used_at)
    return (1 if occupant.stance == "replaced" else 2, occupant.last_used_at)
