"""How busy each logical core is: one sampler for all who ask.

`measure` watches for a window and blocks; callers that come together share one window. `recent` never blocks:
it compares with the reading before, so it suits a scrape. The source of CPU times is handed in.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MIN_WINDOW_SECONDS = 0.2
"""Counters move in steps of 10 ms: a shorter window would show noise."""


@dataclass(frozen=True, slots=True)
class CpuCoreInfo:
    """One logical core: the share of time it was busy, in percent."""

    cpu_id: int
    used_percentage: float

    def to_dict(self) -> dict[str, Any]:
        return {"cpu_id": self.cpu_id, "used_percentage": self.used_percentage}


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """Seconds since boot that a core was busy, and in all."""

    busy: float
    total: float


class CpuSampler:
    """Thread-safe. `read_times` gives one CoreTimes per logical core."""

    def __init__(
        self,
        read_times: Callable[[], list[CoreTimes]],
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read_times = read_times
        self._clock = clock
        self._wait = wait
        self._window = threading.Lock()
        self._state = threading.Lock()
        self._measured: tuple[float, float, list[CpuCoreInfo]] | None = None
        self._baseline: tuple[float, list[CoreTimes]] | None = None
        self._recent: list[CpuCoreInfo] = []

    def measure(self, interval: float) -> list[CpuCoreInfo]:
        """Watch for `interval` seconds; a caller that comes while another watches gets the same window."""
        asked_at = self._clock()
        with self._window:
            if self._measured is not None:
                opened_at, length, cores = self._measured
                if opened_at + length >= asked_at and length >= interval:
                    return cores
            opened_at = self._clock()
            before = self._read_times()
            self._wait(interval)
            cores = _usage(before, self._read_times())
            self._measured = (opened_at, interval, cores)
            return cores

    def recent(self) -> list[CpuCoreInfo]:
        """Usage since an earlier call, at least MIN_WINDOW_SECONDS ago; empty on the first. Never blocks."""
        with self._state:
            now, times = self._clock(), self._read_times()
            if self._baseline is None:
                self._baseline = (now, times)
            elif now - self._baseline[0] >= MIN_WINDOW_SECONDS:
                self._recent = _usage(self._baseline[1], times)
                self._baseline = (now, times)
            return self._recent


def _usage(before: list[CoreTimes], after: list[CoreTimes]) -> list[CpuCoreInfo]:
    return [
        CpuCoreInfo(cpu_id, _share(old, new))
        for cpu_id, (old, new) in enumerate(zip(before, after, strict=False))
    ]


def _share(old: CoreTimes, new: CoreTimes) -> float:
    total = new.total - old.total
    if total <= 0:
        return 0.0
    return round(min(max(100.0 * (new.busy - old.busy) / total, 0.0), 100.0), 1)
