"""The state of residency and its transitions: absent → loading → resident → leaving.

Every method needs residency's lock held and does no I/O, no waiting and no torch work. What takes time is
returned to the caller, who does it without the lock.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hf_transformers_backend.admission import Occupant
from hf_transformers_backend.errors import FlexServError, Unavailable
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.loader import Servable
from hf_transformers_backend.model_settings import LiveSettings, LoadSettings
from hf_transformers_backend.residency.clock import Clock
from hf_transformers_backend.residency.declared import DeclaredList
from hf_transformers_backend.residency.directory import Directory
from hf_transformers_backend.residency.history import History
from hf_transformers_backend.residency.lease import Lease
from hf_transformers_backend.residency.load_job import LoadJob
from hf_transformers_backend.residency.resident import Resident
from hf_transformers_backend.residency.views import EvictionReason, ResidencySnapshot, Unloaded
from hf_transformers_backend.settings import Settings

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


class Shelf:
    """`begin` hands a new job to the threads that load; `give_back` and `on_lost` are what leases call."""

    def __init__(
        self,
        settings: Settings,
        directory: Directory,
        clock: Clock,
        *,
        begin: Callable[[LoadJob], None],
        give_back: Callable[[Resident], None],
        on_lost: Callable[[Callable[[], None]], None],
    ) -> None:
        self.residents: dict[ModelIdentity, Resident] = {}
        self.jobs: dict[ModelIdentity, LoadJob] = {}
        self.leaving: list[Resident] = []
        self.directory = directory
        self.synced = False
        self.draining = False
        self.pressure: Pressure | None = None
        self.history = History(clock.now)
        self._settings = settings
        self._clock = clock
        self._begin = begin
        self._give_back = give_back
        self._on_lost = on_lost

    def resolve(self, name: str | None, kind: Kind) -> ModelIdentity:
        return self.directory.resolve(name, kind, self._live_names())

    def served_as(self, name: str, kind: Kind) -> ModelIdentity | None:
        return self.directory.served_as(name, kind, self._live_names())

    def refuse_when_unable(self) -> None:
        """Raise Unavailable while draining, or under pressure that refuses work."""
        if self.draining:
            raise Unavailable(
                "the server is shutting down; ask another replica", code="draining", retry_after=1
            )
        if self.pressure is not None and self.pressure.refuses_work:
            raise Unavailable(
                "memory is exhausted and nothing is left to unload; try again later",
                code="memory_pressure",
                retry_after=RETRY_SECONDS,
            )

    def lend(self, resident: Resident, requested: str, *, cold: bool) -> Lease:
        return resident.lend(requested, cold=cold, give_back=self._give_back, on_lost=self._on_lost)

    def join_or_begin(self, identity: ModelIdentity, requested: str) -> LoadJob:
        """The load under way, or a new one if the policy lets a mere request start it."""
        job = self.jobs.get(identity)
        if job is None:
            self.directory.check_on_demand(identity, requested)
            job = self.begin(identity, *self._initial_settings(identity))
        return job

    def order(self, identity: ModelIdentity, changes: Mapping[str, Any]) -> LoadJob | None:
        """Load by order: apply live settings, begin what must be loaded. None: the model is in as wanted."""
        self.directory.forgive(identity)
        resident, job = self.residents.get(identity), self.jobs.get(identity)
        current = job or resident
        if current is None:
            load_settings, live = self._initial_settings(identity)
            return self.begin(identity, load_settings.updated(changes), live.updated(changes))
        for known in (job, resident):
            if known is not None:
                known.live = known.live.updated(changes)
        wanted = current.settings.updated(changes)
        if current.settings == wanted:
            return job
        if job is not None:
            return self._supersede(job, wanted)
        return self.begin(identity, wanted, current.live)

    def begin(self, identity: ModelIdentity, settings: LoadSettings, live: LiveSettings) -> LoadJob:
        job = LoadJob(identity, settings, live, self._clock)
        self.jobs[identity] = job
        self.history.load_begun(identity)
        self._begin(job)
        return job

    def declare(self, declared: DeclaredList) -> None:
        self.directory.declared = declared
        for model in declared.models:
            for known in (self.residents.get(model.identity), self.jobs.get(model.identity)):
                if known is not None:
                    known.live = known.live.updated(model.changes)

    def remove(
        self,
        name: str | None,
        kind: Kind | None,
        revisions: Collection[str | None] | None,
        reason: EvictionReason,
    ) -> tuple[list[Unloaded], list[Resident]]:
        """Abort and detach what the name matches; what happened to each, and whom the caller must free."""
        results: list[Unloaded] = []
        freeing: list[Resident] = []
        live = self._live_names()
        for identity in dict.fromkeys([*self.residents, *self.jobs]):
            if not self.directory.matches(identity, name, kind, revisions, live):
                continue
            job, resident = self.jobs.get(identity), self.residents.get(identity)
            if job is not None:
                self._abort(job)
            in_use = resident is not None and resident.leases > 0
            if resident is not None and self.detach(resident, reason):
                freeing.append(resident)
            results.append(Unloaded(identity, resident is not None, job is not None, in_use))
        return results, freeing

    def detach(self, resident: Resident, reason: EvictionReason) -> bool:
        """Take a model out of sight; true if the caller must free it now, false if its last lease will."""
        if self.residents.get(resident.identity) is resident:
            del self.residents[resident.identity]
        resident.reason = reason
        self.leaving.append(resident)
        self.history.evicted(resident.identity, reason)
        logger.info("unloading %s: %s%s", resident.identity, reason, " (in use)" if resident.leases else "")
        return resident.leases == 0

    def detach_expired(self) -> tuple[list[Resident], float | None]:
        """Those that were idle for too long, for the caller to free, and the seconds until the next one."""
        expired: list[Resident] = []
        soonest: float | None = None
        for resident in list(self.residents.values()):
            expires_in = resident.expires_in(self._settings.model_timeout)
            if expires_in is None:
                continue
            if expires_in <= 0:
                self.detach(resident, "idle")
                expired.append(resident)
            else:
                soonest = expires_in if soonest is None else min(soonest, expires_in)
        return expired, soonest

    def occupants(self, newcomer: ModelIdentity, device: str) -> list[Occupant]:
        """Who could make room on `device`; the newcomer's older self goes first: it is replaced anyway."""
        return [
            Occupant(identity, resident.bytes_on(device), True, float("-inf"))
            if identity == newcomer
            else Occupant(
                identity,
                resident.bytes_on(device),
                not resident.live.pin and resident.leases == 0,
                resident.last_used_at,
            )
            for identity, resident in self.residents.items()
        ]

    def land(self, job: LoadJob, servable: Servable) -> tuple[Resident | None, Resident | None]:
        """The load came in. What is unwanted (it was aborted), and what was replaced and must be freed."""
        resident = Resident(job, servable, default=job.identity in self.directory.defaults, clock=self._clock)
        if job.aborted:
            return resident, None
        del self.jobs[job.identity]
        before = self.residents.get(job.identity)
        replaced = before if before is not None and self.detach(before, "replaced") else None
        self.residents[job.identity] = resident
        self.history.load_ended("loaded", job.seconds)
        waiters, job.waiters = job.waiters, []
        for waiter in waiters:
            waiter.lease.set_result(self.lend(resident, waiter.requested, cold=True))
        job.outcome.set_result(None)
        return None, replaced

    def load_failed(self, job: LoadJob, error: FlexServError) -> None:
        if job.aborted:
            self.history.load_ended("aborted", 0)
            return
        del self.jobs[job.identity]
        self.history.load_failed(job, error)
        job.fail(error)

    def snapshot(self) -> ResidencySnapshot:
        timeout, history, declared = self._settings.model_timeout, self.history, self.directory.declared
        return ResidencySnapshot(
            models=tuple(resident.view(timeout) for resident in self.residents.values()),
            unloading=tuple(resident.view(timeout) for resident in self.leaving),
            loading=tuple(job.view() for job in self.jobs.values()),
            failed=tuple(history.failed.values()),
            last_evictions=tuple(history.last_evictions.values()),
            evictions=dict(history.evictions),
            loads=dict(history.loads),
            load_seconds=tuple(history.load_seconds),
            declared_labels=declared.labels(),
            declared_hash=declared.digest,
            synced=self.synced,
            pressure=self.pressure,
        )

    def _live_names(self) -> Sequence[tuple[ModelIdentity, str | None]]:
        residents = [(resident.identity, resident.live.served_name) for resident in self.residents.values()]
        return residents + [(job.identity, job.live.served_name) for job in self.jobs.values()]

    def _initial_settings(self, identity: ModelIdentity) -> tuple[LoadSettings, LiveSettings]:
        declared = self.directory.declared.get(identity)
        changes = declared.changes if declared is not None else {}
        return (
            LoadSettings.of(self._settings, identity).updated(changes),
            LiveSettings().updated(changes),
        )

    def _supersede(self, job: LoadJob, wanted: LoadSettings) -> LoadJob:
        """Start over with other load-time settings; who waits, waits for the new load."""
        job.aborted = True
        successor = self.begin(job.identity, wanted, job.live)
        successor.waiters, job.waiters = job.waiters, []
        job.fail(
            Unavailable(
                f"the load of {job.identity} was replaced by one with other settings", code="superseded"
            )
        )
        return successor

    def _abort(self, job: LoadJob) -> None:
        job.aborted = True
        del self.jobs[job.identity]
        job.fail(
            Unavailable(
                f"{job.identity} was unloaded while it was being loaded",
                code="model_unloaded",
                retry_after=RETRY_SECONDS,
            )
        )
