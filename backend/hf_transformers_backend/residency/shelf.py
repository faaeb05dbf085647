"""The state of residency and its transitions: absent → loading → resident → leaving.

Every method needs residency's lock held and does no I/O, no waiting and no torch work. What takes time is
returned to the caller, who does it without the lock.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from hf_transformers_backend.device_fault import DeviceHealth
from hf_transformers_backend.errors import FlexServError, Unavailable
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.loader import Servable
from hf_transformers_backend.model_settings import LiveSettings, LoadSettings, asked_for
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
        health: DeviceHealth,
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
        self.landing: LoadJob | None = None
        """Whose weights are coming into memory, or go again because it failed or was aborted."""
        self.departures = 0
        """How often memory has come back."""
        self._settings = settings
        self._clock = clock
        self._health = health
        self._begin = begin
        self._give_back = give_back
        self._on_lost = on_lost

    def resolve(self, name: str | None, kind: Kind) -> ModelIdentity:
        return self.directory.resolve(name, kind, self._live_names())

    def served_as(self, name: str, kind: Kind) -> ModelIdentity | None:
        return self.directory.served_as(name, kind, self._live_names())

    def refuse_when_unable(self) -> None:
        """Raise Unavailable while draining, under pressure that refuses work, and once the device failed."""
        self._health.check()
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
            asked, live = self._initial_settings(identity)
            return self.begin(identity, asked_for(asked, changes), live.updated(changes))
        for known in (job, resident):
            if known is not None:
                known.live = known.live.updated(changes)
        asked = asked_for(current.asked, changes)
        wanted = self._in_force(identity, asked)
        if current.settings == wanted:
            current.asked = asked
            return job
        if job is not None and resident is not None and resident.settings == wanted:
            resident.asked = asked
            self._keep(resident, job)
            return None
        if job is not None:
            return self._supersede(job, asked)
        return self.begin(identity, asked, current.live)

    def begin(self, identity: ModelIdentity, asked: Mapping[str, Any], live: LiveSettings) -> LoadJob:
        job = LoadJob(identity, self._in_force(identity, asked), live, self._clock, asked)
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
        _log_departure(resident, reason)
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

    def has_left(self, resident: Resident) -> None:
        """The memory of one that was leaving is back."""
        self.leaving.remove(resident)
        self.departures += 1

    def land(self, job: LoadJob, servable: Servable) -> tuple[Resident | None, Resident | None]:
        """The load came in. What is unwanted (it was aborted), and what was replaced and must be freed."""
        resident = Resident(job, servable, default=job.identity in self.directory.defaults, clock=self._clock)
        if job.aborted:
            return resident, None
        self.landing = None
        del self.jobs[job.identity]
        before = self.residents.get(job.identity)
        replaced = before if before is not None and self.detach(before, "replaced") else None
        self.residents[job.identity] = resident
        self.history.load_ended("loaded", job.seconds)
        self._serve_waiters(job, resident, cold=True)
        job.outcome.set_result(None)
        return None, replaced

    def has_gone(self, job: LoadJob) -> None:
        """What a load that did not land had taken is back."""
        if self.landing is job:
            self.landing = None
            self.departures += 1

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
            load_times=history.load_times,
            declared_labels=declared.labels(),
            declared_hash=declared.digest,
            synced=self.synced,
            pressure=self.pressure,
        )

    def _live_names(self) -> Sequence[tuple[ModelIdentity, str | None]]:
        residents = [(resident.identity, resident.live.served_name) for resident in self.residents.values()]
        return residents + [(job.identity, job.live.served_name) for job in self.jobs.values()]

    def _initial_settings(self, identity: ModelIdentity) -> tuple[Mapping[str, Any], LiveSettings]:
        """The load-time settings that are asked for, and the live ones, as the operator declared them."""
        declared = self.directory.declared.get(identity)
        changes = declared.changes if declared is not None else {}
        return asked_for({}, changes), LiveSettings().updated(changes)

    def _in_force(self, identity: ModelIdentity, asked: Mapping[str, Any]) -> LoadSettings:
        """What was asked for, and the server's own settings for the rest."""
        return LoadSettings.of(self._settings, identity).updated(asked)

    def _supersede(self, job: LoadJob, asked: Mapping[str, Any]) -> LoadJob:
        """Start over with other load-time settings; who waits, waits for the new load."""
        job.aborted = True
        successor = self.begin(job.identity, asked, job.live)
        successor.waiters, job.waiters = job.waiters, []
        job.fail(
            Unavailable(
                f"the load of {job.identity} was replaced by one with other settings", code="superseded"
            )
        )
        return successor

    def _keep(self, resident: Resident, job: LoadJob) -> None:
        """Its replacement is not wanted any more; who waits for that gets the model that is there."""
        job.aborted = True
        del self.jobs[job.identity]
        self._serve_waiters(job, resident, cold=False)
        job.outcome.set_result(None)

    def _serve_waiters(self, job: LoadJob, resident: Resident, *, cold: bool) -> None:
        waiters, job.waiters = job.waiters, []
        for waiter in waiters:
            waiter.lease.set_result(self.lend(resident, waiter.requested, cold=cold))

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


def _log_departure(resident: Resident, reason: EvictionReason) -> None:
    more = {"model": str(resident.identity), "reason": reason, "active_requests": resident.leases}
    if resident.leases:
        logger.warning(
            "unloading %s (%s): %d active request(s) use it and will complete",
            resident.identity,
            reason,
            resident.leases,
            extra=more,
        )
    else:
        logger.info("unloading %s (%s)", resident.identity, reason, extra=more)
