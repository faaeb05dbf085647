"""Does a load fit, and who must go for it: pure decisions over numbers.

A size that the files do not tell is admitted: refusing what would fit is worse than a load that fails by
itself. Models make room only when they are neither pinned nor in use, least recently used first, and only if
that is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hf_transformers_backend.identity import ModelIdentity


@dataclass(frozen=True, slots=True)
class Room:
    """The memory that a load would land in. Without a `threshold_ratio` its free bytes are the limit."""

    device: str
    free_bytes: int
    used_bytes: int
    total_bytes: int
    threshold_ratio: float | None = None

    @property
    def available_bytes(self) -> int:
        """Bytes that a load may take now."""
        if self.threshold_ratio is None:
            return max(self.free_bytes, 0)
        return max(min(self.free_bytes, int(self.total_bytes * self.threshold_ratio) - self.used_bytes), 0)


@dataclass(frozen=True, slots=True)
class Occupant:
    """A resident model as admission sees it; `bytes` are those on the device in question."""

    identity: ModelIdentity
    bytes: int
    movable: bool
    last_used_at: float


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision; `make_room` lists who goes first, in order."""

    admitted: bool
    make_room: tuple[ModelIdentity, ...] = ()
    needed_bytes: int | None = None
    available_bytes: int | None = None


def decide(needed_bytes: int | None, room: Room | None, occupants: Sequence[Occupant]) -> Admission:
    """Admit a load of `needed_bytes` into `room`, perhaps after others made place, or refuse it with the
    numbers.
    """
    if needed_bytes is None or room is None:
        return Admission(True, needed_bytes=needed_bytes)
    available = room.available_bytes
    missing = needed_bytes - available
    going: list[ModelIdentity] = []
    for occupant in sorted(occupants, key=lambda occupant: occupant.last_used_at):
        if missing <= 0:
            break
        if occupant.movable and occupant.bytes > 0:
            going.append(occupant.identity)
            missing -= occupant.bytes
    if missing > 0:
        return Admission(False, needed_bytes=needed_bytes, available_bytes=available)
    return Admission(True, tuple(going), needed_bytes, available)
