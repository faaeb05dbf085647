"""One load from its first wish to its end, and those who wait for it."""

import itertools
import re
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import LoadAborted, Source
from hf_transformers_backend.model_settings import LiveSettings, LoadSettings
from hf_transformers_backend.request_id import current_request_id
from hf_transformers_backend.residency.clock import Clock
from hf_transformers_backend.residency.lease import Lease
from hf_transformers_backend.residency.views import LoadingView, Stage

_sequence = itertools.count()


@dataclass(frozen=True, eq=False, slots=True)
class Waiter:
    """A request that wants a lease as soon as the model is in, under the name that it used."""

    requested: str
    lease: Future[Lease] = field(default_factory=Future)


class LoadJob:
    """Fields that change are guarded by residency's lock, except the progress, which its thread alone writes.

    `asked` are the load-time settings that were asked for by name; `settings` are those in force.
    `outcome` ends with None, or with the error; it never raises. `request_id` is that of the request which
    began it.
    """

    def __init__(
        self,
        identity: ModelIdentity,
        settings: LoadSettings,
        live: LiveSettings,
        clock: Clock,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.live = live
        self.asked: Mapping[str, Any] = asked or {}
        self.load_id = uuid.uuid4().hex[:12]
        self.waiters: list[Waiter] = []
        self.outcome: Future[FlexServError | None] = Future()
        self.aborted = False
        self.source: Source | None = None
        self.sequence = next(_sequence)
        self.request_id = current_request_id()
        self._clock = clock
        self._started: tuple[float, float] | None = None
        self._progress: tuple[Stage, int, int | None, float] = ("queued", 0, None, clock.now())

    @property
    def started_at(self) -> float | None:
        """When its work began, in seconds of the epoch; None while it has only waited for its turn."""
        return None if self._started is None else self._started[0]

    @property
    def seconds(self) -> float:
        """How long it has been worked on."""
        return 0.0 if self._started is None else self._clock.monotonic() - self._started[1]

    def enter(self, stage: Stage) -> None:
        """Begin a stage; LoadAborted if nobody wants the load any more."""
        if stage != "queued":
            self._begin()
        self._progress = (stage, 0, None, self._clock.now())
        self.check()

    def report(self, done: int, total: int | None) -> None:
        """Progress within the stage; LoadAborted if nobody wants the load any more."""
        stage, _, _, since = self._progress
        if stage == "queued" and done:
            self._begin()
            stage, since = "download", self._clock.now()
        self._progress = (stage, done, total, since)
        self.check()

    def _begin(self) -> None:
        if self._started is None:
            self._started = (self._clock.now(), self._clock.monotonic())

    def check(self) -> None:
        if self.aborted:
            raise LoadAborted

    def fail(self, error: FlexServError) -> None:
        """End the job for everybody who waits. Call it once, with the lock held."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.lease.set_exception(renamed(error, self.identity, waiter.requested))
        self.outcome.set_result(error)

    def view(self) -> LoadingView:
        stage, done, total, since = self._progress
        return LoadingView(
            identity=self.identity,
            label=self.live.served_name or self.identity.model_id,
            owner=self.live.owner,
            load_id=self.load_id,
            stage=stage,
            done=done,
            total=total,
            started_at=self.started_at,
            stage_since=since,
        )


def renamed(error: FlexServError, identity: ModelIdentity, requested: str) -> FlexServError:
    """A copy of `error` for one more receiver, that speaks of the model by the name which this one used."""
    name = rf"(?<![\w/@.:-]){re.escape(str(identity))}(?![\w/@-]|[.:]\w)"
    message = re.sub(name, lambda _: requested, error.message)
    return type(error)(
        message, code=error.code, param=error.param, retry_after=error.retry_after, **error.details
    )
