"""What is resident, loading and leased: owner of these facts, of their lock, and of the threads that load.

One lock, held for moments only: never during I/O, torch work or a wait. Public methods may be called from any
thread.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_transformers_backend.admission import Room
from hf_transformers_backend.device_fault import DeviceHealth
from hf_transformers_backend.errors import BadRequest, FlexServError, NotFound
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.loader import Loader, Servable
from hf_transformers_backend.residency import reclaim
from hf_transformers_backend.residency.clock import Clock, SystemClock
from hf_transformers_backend.residency.declared import DeclaredList, DeclaredModel
from hf_transformers_backend.residency.directory import Directory
from hf_transformers_backend.residency.gate import Gate
from hf_transformers_backend.residency.history import UNCODED_FAILURE
from hf_transformers_backend.residency.housekeeper import Housekeeper
from hf_transformers_backend.residency.lease import Lease
from hf_transformers_backend.residency.load_job import LoadJob, Waiter
from hf_transformers_backend.residency.load_pipeline import LoadPipeline, PipelineEvents
from hf_transformers_backend.residency.markers import LoadMarkers
from hf_transformers_backend.residency.outlook import Outlook
from hf_transformers_backend.residency.resident import Resident
from hf_transformers_backend.residency.shelf import Shelf
from hf_transformers_backend.residency.views import (
    EvictionReason,
    EvictionResult,
    Unloaded,
)
from hf_transformers_backend.residency.waiting import wait_for_lease
from hf_transformers_backend.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadTicket:
    """What came of the wish to load: the model is in (`job` is None), or the job that brings it."""

    identity: ModelIdentity
    job: LoadJob | None


class Residency(Outlook):
    """See the module. `rooms` measures the memories that a load may use (none = unknown), `cached_models`
    lists the ids and times of what is on disk, `health` learns what loads raise.
    """

    def __init__(
        self,
        settings: Settings,
        loader: Loader,
        *,
        clock: Clock | None = None,
        rooms: Callable[[Kind], Sequence[Room]] = lambda _: (),
        cached_models: Callable[[], Sequence[tuple[str, int]]] = lambda: (),
        health: DeviceHealth | None = None,
    ) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._housekeeper = Housekeeper(self._changed)
        self._markers = LoadMarkers(settings.state_dir)
        self._health = health or DeviceHealth()
        self._pipeline = LoadPipeline(loader, self._markers)
        clock = clock or SystemClock()
        directory = Directory(settings, clock.now)
        directory.quarantine(self._markers.left_behind())
        self._shelf = Shelf(
            settings,
            directory,
            clock,
            self._health,
            begin=self._pipeline.submit,
            give_back=self._housekeeper.give_back,
            on_lost=self._housekeeper.note_lost,
        )
        self._gate = Gate(
            settings,
            self._shelf,
            self._housekeeper,
            self._lock,
            clock,
            measure=rooms,
            again=self._pipeline.enqueue,
        )
        super().__init__(self._lock, self._shelf, settings, cached_models)
        self._housekeeper.begin_with(self._shelf, self._gate)
        self._pipeline.begin_with(
            PipelineEvents(
                self._gate.foresee,
                self._gate.admit,
                self._gate.make_room_after_failure,
                self._gate.ran_out,
                self._land,
                self._load_failed,
                self._load_aborted,
                self._load_gone,
                self._health.note,
            )
        )

    # Life

    def start(self) -> None:
        """Start the threads and load the default model; the default encoder waits for its first request."""
        self._pipeline.start()
        self._housekeeper.start()
        identity = self.default("serve")
        if identity is None:
            return
        if identity in self.crashed_loading:
            logger.error("not loading %s: its last load ended the process", identity)
        else:
            self.load(identity)

    def drain(self) -> None:
        """Refuse new work from now on; leases that are held go on."""
        with self._lock:
            self._shelf.draining = True

    def close(self, timeout: float) -> bool:
        """Unload everything and end the threads; false if one still runs after about `timeout` seconds."""
        self.drain()
        self.unload(None, reason="shutdown")
        loads_ended = self._pipeline.stop(timeout)
        house_kept = self._housekeeper.stop(timeout)
        self._markers.clear_own()
        return loads_ended and house_kept

    def forget_markers(self) -> None:
        """The process ends on purpose: what it was loading did not kill it. Takes no lock."""
        self._markers.clear_own()

    # Requests

    async def acquire(self, name: str | None, kind: Kind = "serve") -> Lease:
        """A lease on the model, which is loaded if the on-demand policy lets a request do that.

        Waits up to --load-wait; raises the FlexServErrors of the policy and of the load.
        """
        name = self._shelf.directory.heeded(name, kind)
        with self._lock:
            identity = self._shelf.resolve(name, kind)
            requested = name or str(identity)
            self._shelf.refuse_when_unable()
            resident = self._shelf.residents.get(identity)
            if resident is not None:
                return self._shelf.lend(resident, requested, cold=False)
            job = self._shelf.join_or_begin(identity, requested)
            waiter = Waiter(requested)
            job.waiters.append(waiter)
        return await wait_for_lease(waiter, self._settings.load_wait, lambda: self._stop_waiting(waiter, job))

    def request_load(self, name: str, kind: Kind = "serve") -> LoadTicket:
        """Start the load that a mere request wants, without a lease; the on-demand policy holds."""
        heeded = self._shelf.directory.heeded(name, kind)
        with self._lock:
            identity = self._shelf.resolve(heeded, kind)
            self._shelf.refuse_when_unable()
            if identity in self._shelf.residents:
                return LoadTicket(identity, None)
            return LoadTicket(identity, self._shelf.join_or_begin(identity, heeded or str(identity)))

    # Management

    def load(self, identity: ModelIdentity, changes: Mapping[str, Any] | None = None) -> LoadTicket:
        """Load by order, whatever the on-demand policy; joins a load under way.

        `changes` names live settings, which apply at once, and load-time settings, which replace a model that
        has others. Absent settings stay as they are. Raises Unavailable while draining.
        """
        with self._lock:
            self._shelf.refuse_when_unable()
            ticket = LoadTicket(identity, self._shelf.order(identity, changes or {}))
            self._changed.notify_all()
        return ticket

    def unload(
        self,
        name: str | None,
        *,
        kind: Kind | None = None,
        revisions: Collection[str | None] | None = None,
        reason: EvictionReason = "manual",
    ) -> list[Unloaded]:
        """Unload what `name` matches (None: everything), also what is still loading.

        `revisions` narrows it down: None in it is the default revision, None instead of it means all.

        Blocks until unleased memory is back; a leased model goes with its last lease.
        """
        with self._lock:
            results, freeing = self._shelf.remove(name, kind, revisions, reason)
        for resident in freeing:
            self._housekeeper.free(resident)
        return results

    def evict(
        self,
        identity: ModelIdentity,
        reason: EvictionReason,
        *,
        oom_triggered: bool = False,
        even_in_use: bool = False,
    ) -> EvictionResult:
        """Take one idle model out of memory; blocks until that is back.

        Nothing happens to one in use, unless `even_in_use`: then its memory goes with its last request.
        """
        with self._lock:
            resident = self._shelf.residents.get(identity)
            in_use = resident is not None and resident.leases > 0
            if resident is None or (in_use and not even_in_use):
                return EvictionResult(freed=False, had_active_requests=in_use)
            self._shelf.detach(resident, "memory" if oom_triggered else reason)
            if in_use:
                return EvictionResult(freed=False, had_active_requests=True)
        return EvictionResult(freed=self._housekeeper.free(resident), had_active_requests=False)

    def declare(self, models: Iterable[DeclaredModel], digest: str | None) -> None:
        """Take over the operator's whole list; its live settings apply to residents and loads at once."""
        declared = DeclaredList(models, digest)
        with self._lock:
            self._shelf.declare(declared)
            self._changed.notify_all()

    def mark_synced(self) -> None:
        """The operator says that its models are in."""
        with self._lock:
            self._shelf.synced = True

    def set_pressure(self, pressure: Pressure | None) -> None:
        """Show memory pressure; new work is refused while it says so."""
        with self._lock:
            self._shelf.pressure = pressure

    def tidy(self) -> None:
        """Unload what is idle for too long, now; the housekeeper does it by itself in time."""
        self._housekeeper.tidy()

    def release_caches(self) -> None:
        """Give back what is cached but unused; blocks."""
        reclaim.release_caches()

    # Inside

    def _stop_waiting(self, waiter: Waiter, job: LoadJob) -> None:
        with self._lock:
            # A load with other settings may have taken over who waited for `job`.
            for known in (job, self._shelf.jobs.get(job.identity)):
                if known is not None and waiter in known.waiters:
                    known.waiters.remove(waiter)

    def _land(self, job: LoadJob, servable: Servable) -> Resident | None:
        with self._lock:
            unwanted, replaced = self._shelf.land(job, servable)
            self._changed.notify_all()
        del servable
        if unwanted is None:
            more = {"model": str(job.identity), "seconds": round(job.seconds, 3)}
            logger.info("loaded %s in %.1f s", job.identity, job.seconds, extra=more)
        if replaced is not None:
            self._housekeeper.free(replaced)
        return unwanted

    def _load_failed(self, job: LoadJob, error: FlexServError) -> None:
        with self._lock:
            self._shelf.load_failed(job, error)
        more = {"model": str(job.identity), "reason": error.code or UNCODED_FAILURE}
        # What a client asks for by a wrong name is no trouble of the server.
        misnamed = job.request_id is not None and isinstance(error, NotFound | BadRequest)
        level = logging.INFO if misnamed else logging.WARNING
        logger.log(level, "cannot load %s: %s", job.identity, error.message, extra=more)

    def _load_aborted(self, job: LoadJob) -> None:
        with self._lock:
            self._shelf.history.load_ended("aborted", 0)
        logger.info("the load of %s was aborted", job.identity)

    def _load_gone(self, job: LoadJob) -> None:
        with self._lock:
            self._shelf.has_gone(job)
