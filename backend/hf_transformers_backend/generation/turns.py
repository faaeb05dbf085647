"""Turns at a model: its one thread serves requests in order.

At most --max-queue of them wait, the rest is refused.
"""

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from hf_transformers_backend.errors import Busy
from hf_transformers_backend.generation.stream import Cancellation
from hf_transformers_backend.request_id import carrying

T = TypeVar("T")


class QueueMetrics(Protocol):
    """What is told about waiting."""

    @property
    def waiting(self) -> AbstractContextManager[None]:
        """Counts a request for as long as it waits."""

    def observe_queue_wait(self, seconds: float) -> None:
        """Seconds from admission to the first work on the model."""


class Ticket:
    """The right to a turn. `release` when the request is over; idempotent, from any thread."""

    def __init__(self, turns: "Turns") -> None:
        self._turns = turns
        self.admitted_at = time.monotonic()

    def release(self) -> None:
        """Give the place to the next."""
        self._turns.released(self)


class Turns:
    """The queue in front of one model's thread. Thread-safe."""

    def __init__(self, executor: ThreadPoolExecutor, max_queue: int, metrics: QueueMetrics) -> None:
        self._executor = executor
        self._max_queue = max_queue
        self._metrics = metrics
        self._lock = threading.Lock()
        self._tickets: set[Ticket] = set()
        self._seconds_per_request = 1.0  # moving average, for Retry-After

    def admit(self) -> Ticket:
        """A place in the queue. Raises Busy when --max-queue requests wait already."""
        with self._lock:
            if len(self._tickets) > self._max_queue:
                raise Busy(
                    f"{self._max_queue} requests wait for this model already; try again later",
                    retry_after=min(max(1.0, self._seconds_per_request), 60.0),
                )
            ticket = Ticket(self)
            self._tickets.add(ticket)
        return ticket

    def released(self, ticket: Ticket) -> None:
        """Called by the ticket."""
        with self._lock:
            if ticket in self._tickets:
                self._tickets.remove(ticket)
                seconds = time.monotonic() - ticket.admitted_at
                self._seconds_per_request += 0.2 * (seconds - self._seconds_per_request)

    def submit(self, ticket: Ticket, work: Callable[[], T]) -> "Future[T]":
        """Run `work` on the model's thread when its turn comes, counting the wait."""
        wait = self.wait(ticket)

        def run() -> T:
            wait.over(begun=True)
            return work()

        try:
            job = self._executor.submit(carrying(run))
        except BaseException:
            wait.over(begun=False)
            raise
        # A job that was cancelled while it waited never runs.
        job.add_done_callback(lambda _: wait.over(begun=False))
        return job

    def wait(self, ticket: Ticket) -> "Wait":
        """A wait for the model, counted from now until it is over."""
        return Wait(self._metrics, ticket.admitted_at)


class Wait:
    """A request that waits for its first work on the model. Thread-safe."""

    def __init__(self, metrics: QueueMetrics, admitted_at: float) -> None:
        self._metrics = metrics
        self._admitted_at = admitted_at
        self._open = [metrics.waiting]
        self._open[0].__enter__()

    def over(self, *, begun: bool) -> None:
        """The first call counts; `begun` tells whether the work began or never will."""
        try:
            waiting = self._open.pop()
        except IndexError:
            return
        waiting.__exit__(None, None, None)
        if begun:
            self._metrics.observe_queue_wait(time.monotonic() - self._admitted_at)


class Work:
    """Something that runs or waits on a model's thread.

    `cancel` it, or have something done when it is over.
    """

    def __init__(self, cancellation: Cancellation, job: "Future[Any]") -> None:
        self._cancellation = cancellation
        self._job = job

    def cancel(self) -> None:
        """End at the next token; work that still waits never starts."""
        self._cancellation.set()
        self._job.cancel()

    def when_over(self, action: Callable[[], None]) -> None:
        """Call `action` once the model's thread is done with this, maybe at once, maybe on that thread."""
        self._job.add_done_callback(lambda _: action())


def when_all_over(works: Collection[Work], action: Callable[[], None]) -> None:
    """Call `action` once all of them are over; at once if there are none."""
    lock, left = threading.Lock(), len(works)

    def one_is_over() -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            action()

    if not works:
        action()
    for work in works:
        work.when_over(one_is_over)
