"""How long to wait before a load is tried again: by the class of its failure, growing, with jitter. Pure.

All times are seconds of the epoch; all waits are seconds.
"""

import zlib
from dataclasses import dataclass

JITTER = 0.2
"""A wait differs by up to this share from pod to pod, so that pods which failed together do not come back
together."""


@dataclass(frozen=True)
class Pace:
    """Waits double from `first` to at most `longest`."""

    first: float
    longest: float

    def wait(self, failures: int, seed: str = "") -> float:
        """The wait after that many failures in a row (1 = the first); the same seed gives the same jitter."""
        plain: float = min(self.first * 2 ** min(failures - 1, 30), self.longest)
        spread = zlib.crc32(f"{seed}:{failures}".encode()) / 0xFFFFFFFF * 2 - 1
        return plain * (1 + JITTER * spread) if seed else plain


SOON = Pace(5, 300)
NO_ROOM = Pace(60, 1800)
SLOW = Pace(300, 3600)
COOL_DOWN = Pace(60, 1800)
QUARANTINE = Pace(60, 3600)

_PACES = {
    "model_not_found": SLOW,
    "model_gated": SLOW,
    "unsupported_model": SLOW,
    "insufficient_memory": NO_ROOM,
    "insufficient_storage": NO_ROOM,
    "displaced": NO_ROOM,
    "load_timeout": NO_ROOM,
}
_REASONS = {
    "model_not_found": "ModelNotFound",
    "model_gated": "ModelGated",
    "unsupported_model": "UnsupportedModel",
    "insufficient_memory": "InsufficientMemory",
    "insufficient_storage": "InsufficientStorage",
    "hub_unavailable": "HubUnavailable",
    "memory_pressure": "MemoryPressure",
    "load_timeout": "LoadTimeout",
    "displaced": "Displaced",
}
LASTING = frozenset({"ModelNotFound", "ModelGated", "UnsupportedModel", "SettingsRefused"})
"""Reasons that do not go away by waiting: somebody has to change something."""
NOT_FAILURES = frozenset({"model_unloaded", "draining", "wrong_instance"})
"""Codes of loads that were ended on purpose or never began: the next cycle simply tries again."""


def reason_of(code: str) -> str:
    """The word of status for an error code of the backend; what is not known is LoadFailed."""
    return _REASONS.get(code, "LoadFailed")


@dataclass(frozen=True)
class Attempt:
    """What the operator remembers of the failed loads of one model on one pod."""

    load_key: str
    """The claim's key when it failed; another key means that it was edited, and the count starts again."""
    failures: int = 0
    code: str = ""
    message: str = ""
    retry_at: float = 0.0
    seen: str = ""
    """The load_id of the failure counted last."""
    displaced_by: str | None = None
    """The model that took the room; kept until this one is loaded again."""

    @property
    def reason(self) -> str:
        return (
            "Displaced" if self.displaced_by and self.code == "insufficient_memory" else reason_of(self.code)
        )

    def waits(self, now: float) -> bool:
        """Whether it is too early for another try."""
        return self.failures > 0 and now < self.retry_at


def after_failure(
    last: Attempt | None, *, load_key: str, code: str, message: str, seen: str, seed: str, now: float
) -> Attempt:
    """The memory after one more failed load."""
    same = last if last is not None and last.load_key == load_key else None
    failures = (same.failures if same else 0) + 1
    return Attempt(
        load_key=load_key,
        failures=failures,
        code=code,
        message=message,
        retry_at=now + _PACES.get(code, SOON).wait(failures, seed),
        seen=seen,
        displaced_by=same.displaced_by if same else None,
    )
