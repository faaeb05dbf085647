"""Time as residency sees it, so that a test can turn it by hand."""

import time
from typing import Protocol


class Clock(Protocol):
    """`monotonic()` for durations, `now()` (epoch seconds) for what is shown."""

    def monotonic(self) -> float: ...

    def now(self) -> float: ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> float:
        return time.time()
