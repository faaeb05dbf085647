"""What happened: failures, evictions, and how loads ended. Guarded by residency's lock."""

from collections import Counter
from collections.abc import Callable
from typing import Literal

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.residency.load_job import LoadJob
from hf_transformers_backend.residency.views import EvictionReason, EvictionView, FailedView, LoadTimes

MAX_REMEMBERED = 256

UNCODED_FAILURE = "load_failed"
"""The code of a load that failed by an error without one."""

Outcome = Literal["loaded", "failed", "aborted"]


class History:
    """Bounded: what a stranger can make us remember must not grow without end."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.failed: dict[ModelIdentity, FailedView] = {}
        self.last_evictions: dict[ModelIdentity, EvictionView] = {}
        self.evictions: Counter[EvictionReason] = Counter()
        self.loads: Counter[Outcome] = Counter()
        self.load_times = LoadTimes()
        self._sequence = 0

    def load_begun(self, identity: ModelIdentity) -> None:
        self.failed.pop(identity, None)

    def load_failed(self, job: LoadJob, error: FlexServError) -> None:
        self.loads["failed"] += 1
        self.failed[job.identity] = FailedView(
            identity=job.identity,
            load_id=job.load_id,
            code=error.code or UNCODED_FAILURE,
            message=error.message,
            needed_bytes=error.details.get("needed_bytes"),
            available_bytes=error.details.get("available_bytes"),
            at=self._now(),
        )
        _forget_oldest(self.failed)

    def load_ended(self, outcome: Literal["loaded", "aborted"], seconds: float) -> None:
        self.loads[outcome] += 1
        if outcome == "loaded":
            self.load_times = self.load_times.plus(seconds)

    def evicted(self, identity: ModelIdentity, reason: EvictionReason) -> None:
        self._sequence += 1
        self.evictions[reason] += 1
        before = self.last_evictions.pop(identity, None)
        count = 1 if before is None else before.count + 1
        self.last_evictions[identity] = EvictionView(identity, reason, self._sequence, self._now(), count)
        _forget_oldest(self.last_evictions)


def _forget_oldest(remembered: dict[ModelIdentity, FailedView] | dict[ModelIdentity, EvictionView]) -> None:
    while len(remembered) > MAX_REMEMBERED:
        remembered.pop(next(iter(remembered)))
