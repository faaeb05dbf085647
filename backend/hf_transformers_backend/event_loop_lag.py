"""How late the event loop is: the first sign that something blocks it."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

INTERVAL_SECONDS = 1.0
KEPT_SAMPLES = 30


class EventLoopLag:
    """A small task that sleeps and sees how late it wakes. The app's lifespan starts and stops it."""

    def __init__(
        self, interval: float = INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = interval
        self._clock = clock
        self._late: deque[float] = deque(maxlen=KEPT_SAMPLES)
        self._due: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="event-loop-lag")

    async def stop(self) -> None:
        """Cancel the task and wait for it."""
        task, self._task, self._due = self._task, None, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def seconds(self) -> float | None:
        """The worst of the last samples and of now; None before the start. Any thread may ask."""
        due = self._due
        if due is None:
            return None
        return max([0.0, self._clock() - due, *self._late.copy()])

    async def _run(self) -> None:
        while True:
            self._due = self._clock() + self._interval
            await asyncio.sleep(self._interval)
            self._late.append(max(self._clock() - self._due, 0.0))
