"""The daemon thread behind --oom-monitor: probe, decide (eviction.py), do (through residency).

It owns no state of models: what is resident, leased and freed is residency's business. It never ends on an
error; whoever started it stops it with `stop`, which joins.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from hf_transformers_backend.eviction import Candidate, History, Plan, Pressure, Reading, decide
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.memory_readings import read_memory
from hf_transformers_backend.residency.views import EvictionResult, ResidencySnapshot, ResidentView
from hf_transformers_backend.settings import Settings

log = logging.getLogger(__name__)

REFUSING_SECONDS = 5.0
"""The longest pause while work is refused: what clients are told to wait."""


class Residency(Protocol):
    """What the monitor does things through; safe to call from its thread."""

    def snapshot(self) -> ResidencySnapshot: ...
    def evict(
        self,
        identity: ModelIdentity,
        reason: Literal["memory"],
        *,
        oom_triggered: bool = False,
        even_in_use: bool = False,
    ) -> EvictionResult: ...
    def release_caches(self) -> None: ...
    def set_pressure(self, pressure: Pressure | None) -> None: ...


def _wait_for_stop(stop: threading.Event, seconds: float) -> bool:
    return stop.wait(seconds)


class MemoryMonitor:
    """Looks every `oom_check_interval` seconds, and more often while work is refused.

    `watch_vram` is False for a process that runs on the CPU.
    """

    def __init__(
        self,
        residency: Residency,
        settings: Settings,
        *,
        watch_vram: bool,
        probe: Callable[[], Sequence[Reading]] | None = None,
        active_requests: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], bool] = _wait_for_stop,
    ) -> None:
        self._residency = residency
        self._interval = settings.oom_check_interval
        self._policy = settings.oom_eviction
        self._probe = probe or (lambda: read_memory(settings, watch_vram))
        self._active_requests = active_requests or self._leased_requests
        self._clock = clock
        self._wait = wait
        self._history = History()
        self._pressures: tuple[Pressure, ...] = ()
        self._reported: str = "nothing"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pressures(self) -> tuple[Pressure, ...]:
        """Those that stood at the last look, worst first."""
        return self._pressures

    def start(self) -> None:
        """Start the thread; once."""
        if self._thread is not None:
            raise RuntimeError("the memory monitor was already started")
        self._thread = threading.Thread(target=self._run, name="memory-monitor", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> bool:
        """End the thread and join it; false if it is still busy with an eviction after `timeout` seconds."""
        self._stop.set()
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def check(self) -> Plan:
        """One look, and what it asks for. Returns what stands afterwards."""
        plan = self._decide(caches_released=False)
        if plan.action == "release_caches":
            self._residency.release_caches()
            plan = self._decide(caches_released=True)
        # Each round evicts somebody, or cools down; the bound is for a residency that frees nothing.
        for _ in range(len(self._residency.snapshot().models)):
            if plan.action != "evict" or self._stop.is_set():
                break
            plan = self._evict(plan)
        if plan.action == "nothing":
            self._history = History()
        self._report(plan)
        self._pressures = plan.pressures
        self._residency.set_pressure(plan.pressure)
        return plan

    def _run(self) -> None:
        while not self._wait(self._stop, self._pause()):
            try:
                self.check()
            except Exception:  # the top of a thread that must outlive any single failure
                log.exception("Memory could not be checked; trying again in %g s", self._pause())
                # Nobody is refused for a pressure that nobody can see.
                self._pressures = ()
                self._residency.set_pressure(None)

    def _pause(self) -> float:
        """Who was refused was told to come back soon: by then we must have looked again."""
        refusing = any(pressure.refuses_work for pressure in self._pressures)
        return min(self._interval, REFUSING_SECONDS) if refusing else self._interval

    def _decide(self, *, caches_released: bool, readings: Sequence[Reading] | None = None) -> Plan:
        return decide(
            self._probe() if readings is None else readings,
            self._candidates(),
            caches_released=caches_released,
            history=self._history,
            now=self._clock(),
            policy=self._policy,
        )

    def _candidates(self) -> list[Candidate]:
        now = self._residency.snapshot()
        return [
            *(_candidate(resident) for resident in now.models),
            *(_candidate(resident, leaving=True) for resident in now.unloading),
        ]

    def _evict(self, plan: Plan) -> Plan:
        """One round: the victims in turn, measuring after each, no further than needed."""
        log.warning("Memory pressure: %s", "; ".join(map(_describe, plan.pressures)))
        if active := self._active_requests():
            log.warning(
                "%d active request(s) are in flight during this eviction; they will complete",
                active,
                extra={"reason": "memory", "active_requests": active},
            )
        everybody, readings = self._policy == "all", list[Reading]()
        for identity in plan.victims:
            if self._stop.is_set():
                break
            result = self._residency.evict(identity, "memory", oom_triggered=True, even_in_use=everybody)
            more = {"model": str(identity), "reason": "memory", "active_requests": active}
            log.warning("%s (%s) %s", identity, identity.kind, _outcome(result, everybody), extra=more)
            readings = list(self._probe())
            if not everybody and not _any_excess(plan, readings):
                break
        self._history = self._history.after_round(self._clock())
        return self._decide(caches_released=True, readings=readings or None)

    def _report(self, plan: Plan) -> None:
        """Say once what lasts: memory of others, memory that nothing can free, and the end of either."""
        if plan.action == self._reported:
            return
        pressures = "; ".join(map(_describe, plan.pressures))
        if plan.action == "external":
            log.warning("Memory pressure that is not ours, nothing is evicted: %s", pressures)
        elif plan.action == "exhausted":
            log.warning("Memory pressure stays, nothing is left to evict, new work is refused: %s", pressures)
            if active := self._active_requests():
                log.warning(
                    "%d active request(s) hold their models until they end",
                    active,
                    extra={"active_requests": active},
                )
        elif plan.action == "nothing":
            log.info("Memory pressure is over")
        self._reported = plan.action

    def _leased_requests(self) -> int:
        return sum(resident.active_requests for resident in self._residency.snapshot().models)


def _candidate(resident: ResidentView, *, leaving: bool = False) -> Candidate:
    return Candidate(
        identity=resident.identity,
        held_bytes=_memories(resident.devices),
        pinned=resident.pinned,
        priority=resident.priority,
        last_used_at=resident.last_used_at,
        active_requests=resident.active_requests,
        leaving=leaving,
    )


def _memories(devices: Mapping[str, int]) -> Mapping[str, int]:
    """Bytes per memory: Apple's GPU has none of its own."""
    held: Counter[str] = Counter()
    for device, count in devices.items():
        held["cpu" if device.startswith("mps") else device] += count
    return held


def _any_excess(plan: Plan, readings: Sequence[Reading]) -> bool:
    return any(reading.excess_bytes for reading in readings if _is_pressed_by(plan, reading))


def _is_pressed_by(plan: Plan, reading: Reading) -> bool:
    return any(pressure.device == reading.device and pressure.origin == "own" for pressure in plan.pressures)


def _outcome(result: EvictionResult, even_in_use: bool) -> str:
    if result.freed:
        return "was evicted to free memory"
    if result.had_active_requests and even_in_use:
        return "was evicted while in use; its memory goes with its last request"
    if result.had_active_requests:
        return "came into use meanwhile and was not evicted"
    return "was evicted, but its memory is not back yet"


def _describe(pressure: Pressure) -> str:
    name = "RAM" if pressure.resource == "ram" else f"VRAM of {pressure.device}"
    scope = "" if pressure.scope == "device" else f" of the {pressure.scope}"
    return (
        f"{name}{scope} at {100 * pressure.used_ratio:.1f} %"
        f" (threshold {100 * pressure.threshold_ratio:.1f} %, {pressure.origin})"
    )
