"""The one loop: gather what should be, visit the pods that are due, report.

Each cycle is short whatever the pods do: visits run beside the loop, one per pod, and the cycle waits for
them only a
moment. What a late one finds is reported by the next cycle.
"""

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

from flexserv_operator.api_server import ApiServer
from flexserv_operator.backend_client import BackendClient
from flexserv_operator.census import Census
from flexserv_operator.cluster import Cluster, View
from flexserv_operator.config import Config
from flexserv_operator.desired import Desired
from flexserv_operator.fetching import Fetches
from flexserv_operator.lanes import Lane
from flexserv_operator.metrics import Metrics
from flexserv_operator.plans import Memory
from flexserv_operator.quarantine import Ward
from flexserv_operator.report import Reporter, compose
from flexserv_operator.silence import silence
from flexserv_operator.tallies import read
from flexserv_operator.visits import Visitor

logger = logging.getLogger(__name__)

DEBOUNCE_S = 0.05
VISIT_WAIT_S = 0.5
STALE_BEATS = 6
"""Ticks without a whole cycle after which the loop counts as dead."""


class Reconciler:
    """Owns the loop and everything that it remembers. `start` and `stop` it once."""

    def __init__(
        self, config: Config, cluster: Cluster, api: ApiServer, client: BackendClient, metrics: Metrics
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._client = client
        self._metrics = metrics
        fetches = Fetches() if config.shared_cache else None
        self._visitor = Visitor(client, metrics, config.tick_seconds, time.time, fetches)
        self._reporter = Reporter(api, metrics, time.monotonic)
        self._census = Census(cluster, api)
        self._dirty = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._lanes: dict[str, Lane] = {}
        self._desired: Desired | None = None
        self._ward = Ward()
        self._reported: object = None
        self._gathering = False
        self._last_beat = time.monotonic()

    def mark_dirty(self, *, listed_anew: bool = False) -> None:
        """Something changed. `listed_anew`: a watch began anew and may have missed deletions."""
        if listed_anew:
            self._census.hurry()
        self._dirty.set()

    def start(self) -> None:
        """Run the loop in a task of its own."""
        self._task = asyncio.create_task(self._run(), name="reconcile")

    async def stop(self) -> None:
        """End the loop and all visits, and close the connections to the pods."""
        tasks = [task for task in (self._task, *(lane.visit for lane in self._lanes.values())) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()

    @property
    def silent_for(self) -> float:
        """Seconds since the last whole cycle."""
        return time.monotonic() - self._last_beat

    @property
    def alive(self) -> bool:
        """Whether cycles still come to their end."""
        return self.silent_for < STALE_BEATS * (self._config.tick_seconds + self._config.poll_timeout_seconds)

    async def _run(self) -> None:
        while True:
            pause = self._config.tick_seconds
            try:
                with self._metrics.cycle_duration.time():
                    pause = await self._cycle()
            except Exception:
                # A fault of ours must not end the loop; if every cycle has it, the heartbeat stops.
                logger.exception("this cycle failed")
            else:
                self._last_beat = time.monotonic()
                self._metrics.last_cycle.set_to_current_time()
            try:
                # Not wait_for: in Python 3.11 it swallows the end of the loop if both come at once.
                async with asyncio.timeout(pause):
                    await self._dirty.wait()
                await asyncio.sleep(DEBOUNCE_S)
            except TimeoutError:
                pass
            self._dirty.clear()

    async def _cycle(self) -> float:
        """One round; returns after how many seconds the next one is due."""
        if time.monotonic() >= self._census.due_at and await self._census.take():
            self._reported = None  # once in a while, what somebody else wrote into a status is put right
        if not self._cluster.complete:
            return max(self._census.due_at - time.monotonic(), DEBOUNCE_S)
        view = self._stable(self._cluster.view())
        await self._visit(view)
        self._update_ward(view.desired)
        await self._report(view)
        due = min((lane.due for lane in self._lanes.values() if not lane.busy), default=float("inf"))
        return min(max(due - time.monotonic(), DEBOUNCE_S), self._config.tick_seconds)

    def _stable(self, view: View) -> View:
        """The view with quarantines, and with the same `desired` object as before if nothing in it
        changed."""
        models = view.desired.models.values()
        known = (
            (model.uid, model.generation, model.identity, view.listed[model.uid].status) for model in models
        )
        self._ward.admit(known, time.time())
        self._metrics.quarantined.set(len(self._ward.records))
        desired = replace(view.desired, quarantines=dict(self._ward.records))
        if desired != self._desired:
            self._desired = desired
        return replace(view, desired=self._desired)

    async def _visit(self, view: View) -> None:
        """Start the visits that are due, and wait a moment for those under way."""
        pods = {pod.uid: pod for pod in view.pods}
        for uid in self._lanes.keys() - pods.keys():
            lane = self._lanes.pop(uid)
            self._visitor.forget(lane)
            if lane.visit:
                lane.visit.cancel()
        for uid in pods.keys() - self._lanes.keys():
            models = view.desired.models.values()
            evictions = ((model.identity, view.listed[model.uid].status) for model in models)
            tallies = read(pods[uid].name, evictions)
            self._lanes[uid] = Lane(pods[uid], memory=Memory(tallies=tallies))
            self._visitor.expect(self._lanes[uid])
        now = time.monotonic()
        declaration: dict[str, Any] | None = None
        for uid, pod in pods.items():
            lane = self._lanes[uid]
            changed = lane.pod != pod or lane.asked is not view.desired
            # Before the next look, the deaths that the last one found have to be on record.
            if lane.busy or lane.crashes or not (changed or now >= lane.due):
                continue
            # A visit makes the next one due earlier where it sees a reason.
            lane.pod, lane.asked, lane.due = pod, view.desired, now + self._config.tick_seconds
            url = pod.url(view.service) if view.service else None
            if url is None:
                self._visitor.forget(lane)
                lane.silence = silence(
                    pod, "BackendUnreachable", "the pod has no address yet, or not the Service's port"
                )
            else:
                declaration = declaration or view.desired.declaration(time.time())
                visit = self._visitor.visit(lane, url, view.desired, declaration)
                lane.visit = asyncio.create_task(visit, name=f"visit {pod.name}")
                lane.visit.add_done_callback(self._visited)
        visits = [lane.visit for lane in self._lanes.values() if lane.visit and lane.busy]
        if visits:
            self._gathering = True
            await asyncio.wait(visits, timeout=VISIT_WAIT_S)
            self._gathering = False

    def _visited(self, visit: asyncio.Task[None]) -> None:
        if not visit.cancelled() and visit.exception():
            logger.error("%s failed", visit.get_name(), exc_info=visit.exception())
        if not self._gathering:
            self._dirty.set()

    def _update_ward(self, desired: Desired) -> None:
        """Put models that killed a container into quarantine, and let those go that came through."""
        now = time.time()
        for lane in self._lanes.values():
            for identity, crash in lane.crashes.items():
                if self._ward.note(identity, crash, now):
                    logger.warning("pod %s: %s while loading %s", lane.pod.name, crash.reason, identity)
                    self._dirty.set()
            lane.crashes = {}
        for claim in desired.claims:
            if claim.identity in self._ward.records:
                states = [lane.replica(claim.identity).state for lane in self._lanes.values()]
                if self._ward.release(claim.identity, claim.pinned, states, now):
                    self._dirty.set()

    async def _report(self, view: View) -> None:
        """Write statuses, unless all that they are made of is as it was when the last ones were written."""
        lanes = list(self._lanes.values())
        ground = (
            view,
            dict(self._ward.records),
            [(lane.pod.name, lane.replicas, lane.seen, lane.silence, lane.awaited) for lane in lanes],
        )
        if ground == self._reported:
            return
        service, latest = self._cluster.backend_service, self._reporter.latest
        reports = compose(view, lanes, service, latest, self._ward.records, time.time())
        self._reported = ground if await self._reporter.write(reports) else None
