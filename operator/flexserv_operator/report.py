"""Writes statuses and Events: at once when something changed, else never."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flexserv_operator.api_server import ApiServer
from flexserv_operator.backoff import Pace
from flexserv_operator.changes import merge_patch, transition, worth_writing
from flexserv_operator.cluster import View
from flexserv_operator.desired import Model
from flexserv_operator.errors import (
    ApiServerError,
    ApiServerForbids,
    ApiServerUnreachable,
    ObjectChanged,
    ObjectGone,
)
from flexserv_operator.inventory import Identity
from flexserv_operator.lanes import Lane
from flexserv_operator.metrics import Metrics, ShownModel
from flexserv_operator.quarantine import Quarantine
from flexserv_operator.status import build

logger = logging.getLogger(__name__)

Latest = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
WRITES_AT_A_TIME = 8
AGAIN = Pace(1, 15)
STATUSES, EVENTS = "statuses", "events"
ECHO_S = 5
"""How long a status just written is believed against an older one from the watch, which lags."""


@dataclass(frozen=True)
class Report:
    """One FlexServModel's status: the latest known, and the one it should have."""

    model: Model
    before: Mapping[str, Any]
    status: Mapping[str, Any]
    version: str
    """The resourceVersion to write on: of several operators that want the model, one gets it."""


def compose(
    view: View,
    lanes: Iterable[Lane],
    service: str,
    latest: Latest,
    records: Mapping[Identity, Quarantine],
    now: float,
) -> list[Report]:
    """The status that every FlexServModel in our care should have; `latest` gives the newest known one by
    uid."""
    desired, reports = view.desired, []
    claims = {uid: claim for claim in desired.claims for uid in claim.claimants}
    by_name = sorted(lanes, key=lambda lane: lane.pod.name)
    for uid, model in desired.models.items():
        claim, before = claims.get(uid), latest(uid, view.listed[uid].status)
        problem = None
        if view.service is None:
            problem = ("BackendNotFound", f"there is no Service {service} in this namespace")
        elif uid in desired.conflicts:
            problem = ("Conflict", desired.conflicts[uid])
        if claim and problem is None and any(lane.may_tell(claim) for lane in by_name):
            # Soon there is something true to say about this generation; until then the last word stands.
            reports.append(Report(model, before, before, view.listed[uid].version))
            continue
        replicas = {lane.pod.name: lane.replica(claim.identity) for lane in by_name} if claim else {}
        record = records.get(model.identity)
        pods = len(by_name) if view.service else 0
        status = build(
            model, before, claim, service, replicas, now, problem=problem, quarantine=record, pods=pods
        )
        reports.append(Report(model, before, status, view.listed[uid].version))
    return reports + _strays(view, latest, now) + _released(view, service, latest, now)


def _strays(view: View, latest: Latest, now: float) -> list[Report]:
    """Of the FlexServModels whose Service does not exist."""
    reports = []
    for model in view.strays:
        listed, name = view.listed[model.uid], model.backend or ""
        before = latest(model.uid, listed.status)
        problem = (
            "BackendNotFound",
            f"there is no Service {name}, which spec.backendRef names, in this namespace",
        )
        status = build(model, before, None, name, {}, now, problem=problem)
        reports.append(Report(model, before, status, listed.version))
    return reports


def _released(view: View, service: str, latest: Latest, now: float) -> list[Report]:
    """Of the FlexServModels that this operator adopted once: without `backend`, which lets another one take
    them."""
    problem = (
        "BackendNotFound",
        f"spec.backendRef names no backend, and the operator of {service} adopts such models no more",
    )
    reports = []
    for model in view.released:
        listed = view.listed[model.uid]
        before = latest(model.uid, listed.status)
        status = build(model, before, None, service, {}, now, problem=problem)
        del status["backend"]
        reports.append(Report(model, before, status, listed.version))
    return reports


def _shown(report: Report) -> ShownModel:
    status = report.status
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
    return ShownModel(report.model.name, report.model.pinned, status.get("phase", "Pending"), ready)


class Reporter:
    """Remembers what it wrote, because the watch shows it a moment later, and what it could not write, to try
    that less and less. `clock` is in seconds and never set back."""

    def __init__(self, api: ApiServer, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._api = api
        self._metrics = metrics
        self._clock = clock
        self._written: dict[str, tuple[Mapping[str, Any], float]] = {}
        self._failed: dict[str, tuple[int, float]] = {}
        """Failures in a row, and when to try again: of all STATUSES, of all EVENTS, or of one uid."""
        self._slots = asyncio.Semaphore(WRITES_AT_A_TIME)

    def latest(self, uid: str, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """The newest known status, where the watch has `seen`."""
        written, at = self._written.get(uid, (seen, 0.0))
        return written if self._clock() - at < ECHO_S else seen

    async def write(self, reports: Sequence[Report]) -> bool:
        """Write what changed; false if something is left to a later cycle.

        While the API server is away this takes as long as one write, however many there are to do.
        """
        self._metrics.show_models(map(_shown, reports))
        present = {report.model.uid for report in reports}
        self._written = {uid: entry for uid, entry in self._written.items() if uid in present}
        known = {*present, STATUSES, EVENTS}
        self._failed = {key: entry for key, entry in self._failed.items() if key in known}
        changed = [report for report in reports if report.before != report.status]
        results = await asyncio.gather(*map(self._write, changed), return_exceptions=True)
        failures = [result for result in results if isinstance(result, BaseException)]
        for failure in failures:
            if not isinstance(failure, ApiServerError):
                raise failure
        if failures:
            logger.warning("%d statuses could not be written: %s", len(failures), failures[0])
        return all(result is True for result in results)

    async def _write(self, report: Report) -> bool:
        model, old, new = report.model, report.before, report.status
        last_write = self._written.get(model.uid, ({}, 0.0))[1]
        if not worth_writing(old, new, last_write, self._clock()):
            return False
        async with self._slots:
            if self._waits(STATUSES) or self._waits(model.uid):
                return False
            try:
                await self._api.patch_status(model, merge_patch(old, new), report.version)
            except (ObjectGone, ObjectChanged):
                return False  # the watch is about to say so
            except (ApiServerUnreachable, ApiServerForbids):
                self._wait(STATUSES)
                raise
            except ApiServerError:
                self._wait(model.uid)
                raise
            self._failed.pop(STATUSES, None)
            self._failed.pop(model.uid, None)
            self._written[model.uid] = (new, self._clock())
            await self._tell(model, transition(old, new))
        return True

    async def _tell(self, model: Model, event: tuple[str, str, str] | None) -> None:
        """Post an Event. One that is lost is not missed: the status says the same."""
        if event is None or self._waits(EVENTS):
            return
        try:
            await self._api.post_event(model, *event)
        except ApiServerError as error:
            self._wait(EVENTS)
            logger.warning("an Event of %s could not be posted: %s", model.name, error)
        else:
            self._failed.pop(EVENTS, None)

    def _waits(self, key: str) -> bool:
        return self._clock() < self._failed.get(key, (0, 0.0))[1]

    def _wait(self, key: str) -> None:
        """Writes that began together fail together, and count once."""
        if not self._waits(key):
            count = self._failed.get(key, (0, 0.0))[0] + 1
            self._failed[key] = (count, self._clock() + AGAIN.wait(count))
