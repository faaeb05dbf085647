"""Gives memory back: of models idle for too long, and of unloaded ones when their last lease ends."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hf_transformers_backend.heap import Sweeper
from hf_transformers_backend.residency import reclaim
from hf_transformers_backend.residency.resident import Resident
from hf_transformers_backend.residency.shelf import Shelf

if TYPE_CHECKING:
    from hf_transformers_backend.residency.gate import Gate

logger = logging.getLogger(__name__)

LONGEST_NAP_SECONDS = 5.0
T = TypeVar("T")


class Housekeeper:
    """One thread, from `start` to `stop`. `changed` is the condition on residency's lock.

    `begin_with` comes before everything else: shelf, gate and housekeeper need each other.
    """

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._doomed: deque[Resident] = deque()
        self._lost_leases: deque[Callable[[], None]] = deque()
        self._heap = Sweeper()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="flexserv-housekeeper", daemon=True)
        self._shelf: Shelf
        self._gate: Gate

    def begin_with(self, shelf: Shelf, gate: "Gate") -> None:
        self._shelf = shelf
        self._gate = gate

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """False if it is still freeing something after `timeout` seconds."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def give_back(self, resident: Resident) -> None:
        """A lease has ended. Returns at once: the thread frees what it was the last lease of."""
        with self._changed:
            resident.take_back()
            if resident.reason is not None and resident.leases == 0:
                self._doomed.append(resident)
            self._changed.notify_all()

    def note_lost(self, release: Callable[[], None]) -> None:
        """A lease was dropped. Called by the garbage collector, in any thread, perhaps under our own lock."""
        self._lost_leases.append(release)

    def free(self, resident: Resident) -> bool:
        """Free a detached model that nobody uses; blocks, true when the memory is back.

        A failure is logged and raises nothing: who frees several must not stop at the first.
        """
        try:
            return reclaim.free(resident.take_servable, at_exit=resident.reason == "shutdown")
        except Exception as error:
            logger.exception("freeing the memory of %s failed", resident.identity)
            reclaim.forget_frames(error)
            return False
        finally:
            with self._changed:
                self._shelf.has_left(resident)
                self._changed.notify_all()
            self._gate.somebody_left()

    def tidy(self) -> float:
        """Do what is due now; returns the seconds until the next look."""
        with self._changed:
            lost, freeing = _take_all(self._lost_leases), _take_all(self._doomed)
        for release in lost:
            logger.error("a lease was dropped without a release")
            release()
        with self._changed:
            expired, soonest = self._shelf.detach_expired()
        for resident in (*freeing, *expired):
            self.free(resident)
        self._gate.tidy()
        self._heap.sweep()
        return LONGEST_NAP_SECONDS if soonest is None else min(LONGEST_NAP_SECONDS, soonest)

    def _run(self) -> None:
        while True:
            try:
                nap = self.tidy()
            except Exception:
                # Without this thread no memory would ever be given back: log, and go on.
                logger.exception("tidying up failed")
                nap = LONGEST_NAP_SECONDS
            with self._changed:
                if self._stopped:
                    return
                if not self._doomed:
                    self._changed.wait(nap)


def _take_all(waiting: "deque[T]") -> list[T]:
    return [waiting.popleft() for _ in range(len(waiting))]
