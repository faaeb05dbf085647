"""Lets loads into memory: room is made for them, waited for, or refused. Runs on the loading thread."""

import logging
import threading
from collections.abc import Callable, Collection, Sequence

from hf_transformers_backend.admission import Admission, Occupant, Room, decide, relief, with_margin
from hf_transformers_backend.errors import RETRY_SECONDS, InsufficientStorage
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.residency.clock import Clock
from hf_transformers_backend.residency.housekeeper import Housekeeper
from hf_transformers_backend.residency.load_job import LoadJob
from hf_transformers_backend.residency.resident import Resident
from hf_transformers_backend.residency.shelf import Shelf
from hf_transformers_backend.residency.views import EvictionReason
from hf_transformers_backend.settings import Settings

logger = logging.getLogger(__name__)


class Gate:
    """`lock` is residency's; `again` brings a load back to `admit` once somebody has left."""

    def __init__(
        self,
        settings: Settings,
        shelf: Shelf,
        housekeeper: Housekeeper,
        lock: threading.Lock,
        clock: Clock,
        *,
        measure: Callable[[Kind], Sequence[Room]],
        again: Callable[[LoadJob], None],
    ) -> None:
        self._patience = settings.load_wait
        self._max_models = settings.max_loaded_models
        self._shelf = shelf
        self._housekeeper = housekeeper
        self._lock = lock
        self._clock = clock
        self._measure = measure
        self._again = again
        self._waiting: list[LoadJob] = []
        self._deadlines: dict[LoadJob, float] = {}

    def foresee(self, job: LoadJob, weights_bytes: int | None) -> None:
        """Before the download: raise InsufficientStorage if it would not fit even with all our models gone.

        Who goes is decided after the download: until then much may change, and the old ones serve.
        """
        needed = with_margin(weights_bytes)
        if needed is None:
            return
        seen = self._shelf.departures
        rooms = self._measure(job.identity.kind)
        with self._lock:
            here = (*self._shelf.residents.values(), *self._shelf.leaving)
            occupants = [Occupant(one.identity, one.held_bytes, one.last_used_at) for one in here]
            # Memory that somebody is just taking, or has just given back, is in no occupant's name.
            settled = self._shelf.departures == seen and self._shelf.landing is None
        admission = decide(needed, rooms, occupants)
        if settled and admission.verdict == "refuse":
            raise self._refusal(job, admission)

    def admit(self, job: LoadJob, weights_bytes: int | None) -> bool:
        """Make room; false if the load has to come again when models on their way out are gone.

        Blocks until the memory is back. Raises InsufficientStorage with the numbers, and LoadAborted.
        """
        needed = with_margin(weights_bytes)
        while True:
            seen = self._shelf.departures
            rooms = self._measure(job.identity.kind) if needed is not None else ()
            with self._lock:
                self._check(job)
                admission = decide(needed, rooms, self._occupants(job.identity), self._max_models)
                if self._shelf.departures != seen and (admission.verdict == "refuse" or admission.make_room):
                    continue  # measured before somebody's memory came back
                waits = admission.verdict == "wait" and self._wait(job)
                refused = admission.verdict != "admit" and not waits
                freeing = [] if refused else self._detach(job, admission.make_room)
                if not waits:
                    self._deadlines.pop(job, None)
            given_back = [self._housekeeper.free(resident) for resident in freeing]
            if waits or all(given_back):
                break
            # Somebody still holds the weights of one: measure and decide again.
        if refused:
            raise self._refusal(job, admission)
        if waits:
            logger.info("%s waits for memory that models on their way out hold", job.identity)
            return False
        with self._lock:
            self._shelf.landing = job
        return True

    def make_room_after_failure(self, job: LoadJob, weights_bytes: int | None) -> None:
        """Memory ran out although the load was let in: unload idle models for its size, or all of them."""
        rooms = self._measure(job.identity.kind)
        with self._lock:
            going = relief(with_margin(weights_bytes), rooms, self._occupants(job.identity))
            freeing = self._detach(job, going)
        for resident in freeing:
            self._housekeeper.free(resident)

    def ran_out(self, job: LoadJob, weights_bytes: int | None) -> InsufficientStorage:
        """The error of a load for which memory ran out twice."""
        available = sum(room.available_bytes for room in self._measure(job.identity.kind))
        needed = with_margin(weights_bytes)
        estimate = "of unknown size" if needed is None else f"that needs about {needed} bytes"
        return InsufficientStorage(
            f"memory ran out while {job.identity} was loaded, {estimate}; {available} bytes are available",
            code="insufficient_memory",
            needed_bytes=needed,
            available_bytes=available,
        )

    def somebody_left(self) -> None:
        """Memory came back: all who wait try again."""
        with self._lock:
            coming, self._waiting = self._waiting, []
        for job in coming:
            self._again(job)

    def tidy(self) -> None:
        """Bring back loads that were aborted while they waited, or have waited for too long."""
        now = self._clock.monotonic()
        with self._lock:
            coming = [job for job in self._waiting if job.aborted or now >= self._deadlines[job]]
            self._waiting = [job for job in self._waiting if job not in coming]
            for job in coming:
                if job.aborted:
                    del self._deadlines[job]
        for job in coming:
            self._again(job)

    def _check(self, job: LoadJob) -> None:
        try:
            job.check()
            self._shelf.refuse_when_unable()
        except BaseException:
            self._deadlines.pop(job, None)
            raise

    def _wait(self, job: LoadJob) -> bool:
        """False when its patience is over."""
        now = self._clock.monotonic()
        deadline = self._deadlines.setdefault(job, now + self._patience)
        if now >= deadline:
            return False
        self._waiting.append(job)
        return True

    def _occupants(self, newcomer: ModelIdentity) -> list[Occupant]:
        return [
            *(resident.occupant(newcomer) for resident in self._shelf.residents.values()),
            *(resident.occupant(newcomer, leaving=True) for resident in self._shelf.leaving),
        ]

    def _detach(self, job: LoadJob, identities: Collection[ModelIdentity]) -> list[Resident]:
        """Those that the caller must free now."""
        freeing = []
        for identity in identities:
            resident = self._shelf.residents.get(identity)
            reason: EvictionReason = "replaced" if identity == job.identity else "room"
            if resident is not None and self._shelf.detach(resident, reason):
                freeing.append(resident)
        return freeing

    def _refusal(self, job: LoadJob, admission: Admission) -> InsufficientStorage:
        waited = admission.verdict == "wait"
        why = self._who_holds_on() if waited else "none of them can go"
        retry_after = RETRY_SECONDS if waited else None
        if admission.lacking == "count":
            return InsufficientStorage(
                f"{job.identity} would be one model too many: {self._max_models} may be in memory"
                f" (--max-loaded-models), and {why}",
                code="insufficient_memory",
                retry_after=retry_after,
                max_loaded_models=self._max_models,
            )
        return InsufficientStorage(
            f"{job.identity} needs {admission.needed_bytes} bytes of memory,"
            f" {admission.available_bytes} are available" + (f", and {why}" if waited else ""),
            code="insufficient_memory",
            retry_after=retry_after,
            needed_bytes=admission.needed_bytes,
            available_bytes=admission.available_bytes,
        )

    def _who_holds_on(self) -> str:
        """Why there is no room although models are on their way out."""
        with self._lock:
            here = (*self._shelf.leaving, *self._shelf.residents.values())
            names = ", ".join(f"{one.identity} ({one.leases})" for one in here if one.leases)
        return (
            f"those that leave have had requests for {self._patience:g} s: {names or 'they are just leaving'}"
        )
