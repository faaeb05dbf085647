"""Visits to pods: look, decide, act, and never two to one pod at a time."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flexserv_operator.backend_client import BackendClient
from flexserv_operator.backoff import Pace
from flexserv_operator.decide import plan, standing
from flexserv_operator.deeds import Deeds
from flexserv_operator.desired import Claim, Desired
from flexserv_operator.errors import BackendError, BackendRefused
from flexserv_operator.fetching import NOBODY, Fetches
from flexserv_operator.inventory import Identity, Inventory
from flexserv_operator.lanes import Lane
from flexserv_operator.metrics import Metrics
from flexserv_operator.plans import Load, Plan, Refusal
from flexserv_operator.replica import State, unreachable

logger = logging.getLogger(__name__)

AFTER_ACTION_S = 0.3
WHILE_LOADING_S = 1.0
WHILE_SILENT_S = 2.0
HINDERED = Pace(0.5, 60)
UNKNOWN_FIELD = ": is not a known field"
"""How a backend begins to complain about what a later one takes."""


class Visitor:
    """`fetches` is there if the pods share a cache; `tick` are the seconds between looks at a quiet pod."""

    def __init__(
        self,
        client: BackendClient,
        metrics: Metrics,
        tick: float,
        clock: Callable[[], float],
        fetches: Fetches | None = None,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._tick = tick
        self._clock = clock
        self._fetches = fetches
        self._deeds = Deeds(client, metrics, clock)

    def expect(self, lane: Lane) -> None:
        """A pod that is going to be visited for the first time."""
        if self._fetches is not None:
            self._fetches.expect(lane.pod.uid)

    def forget(self, lane: Lane) -> None:
        """The pod is gone, or cannot be visited."""
        if self._fetches is not None:
            self._fetches.lost(lane.pod.uid)

    async def visit(self, lane: Lane, url: str, desired: Desired, declaration: Mapping[str, Any]) -> None:
        """One look and what follows from it. What went wrong is in the lane."""
        try:
            await self._visit(lane, url, desired, declaration)
        except Exception:
            # A fault of ours, which must not pass for what the pod said before.
            logger.exception("the visit to pod %s failed", lane.pod.name)
            lane.silence = unreachable("OperatorFault", "the operator failed on this pod; its log says why")
            self.forget(lane)

    async def _visit(self, lane: Lane, url: str, desired: Desired, declaration: Mapping[str, Any]) -> None:
        try:
            inventory = await self._client.inventory(url, lane.pod.uid)
        except BackendError as error:
            self._silent(lane, error)
            return
        lane.memory = replace(lane.memory, refusals=standing(desired, inventory, lane.memory))
        if lane.memory.refusals:
            declaration = desired.declaration(self._clock(), lane.memory.refusals)
        decision = self._decide(lane, desired, declaration["hash"], inventory)
        lane.memory, lane.replicas, lane.crashes = decision.memory, decision.replicas, decision.crashes
        lane.silence, lane.failed_polls = None, 0
        try:
            for action in decision.actions:
                await self._deeds.carry_out(lane, url, inventory.instance_id, action, declaration)
        except BackendError as error:
            if self._left_out(lane, desired, declaration, error):
                return
            self._hindered(lane, desired, error)
        else:
            lane.failed_visits = 0
            lane.due = time.monotonic() + self._next_look(decision)
            lane.told = {claim.identity: claim for claim in desired.claims}
        lane.seen = {claim.identity: claim for claim in desired.claims}

    def _decide(self, lane: Lane, desired: Desired, declared_hash: str, inventory: Inventory) -> Plan:
        """The plan for the pod; whoever is told to load what is in no cache yet has the turn to fetch it."""
        now, pod, elsewhere = self._clock(), lane.pod, NOBODY
        if self._fetches is not None:
            self._fetches.saw(pod.uid, pod.name, inventory, now)
            self._fetches.keep_only(desired.claimed)
            elsewhere = self._fetches.elsewhere(pod.uid, desired.claims, now)
        decision = plan(
            desired,
            declared_hash,
            inventory,
            lane.memory,
            now,
            oom_killed=pod.oom_killed,
            elsewhere=elsewhere,
        )
        if self._fetches is not None:
            for action in decision.actions:
                if isinstance(action, Load):
                    self._fetches.begin(pod.uid, pod.name, inventory.instance_id, action.claim, now)
        return decision

    def _left_out(
        self, lane: Lane, desired: Desired, declaration: Mapping[str, Any], error: BackendError
    ) -> bool:
        """If the pod refused the list for one model's sake: leave that one out from the next look on."""
        if not isinstance(error, BackendRefused) or error.entry is None:
            return False
        if error.entry >= len(declaration["models"]):
            return False
        entry = declaration["models"][error.entry]
        identity = Identity(entry["kind"], entry["model_id"], entry["revision"])
        claim = next(claim for claim in desired.claims if claim.identity == identity)
        refusal = _refusal(claim, error.message.removeprefix(f"models[{error.entry}]."))
        logger.warning("pod %s: %s: %s", lane.pod.name, identity, refusal.message)
        lane.memory = replace(lane.memory, refusals={**lane.memory.refusals, identity: refusal})
        lane.due = time.monotonic() + min(AFTER_ACTION_S, self._tick)
        return True

    def _hindered(self, lane: Lane, desired: Desired, error: BackendError) -> None:
        """What was not done is still to do at the next look, which comes later and later while this goes
        on."""
        lane.failed_visits += 1
        lane.due = time.monotonic() + HINDERED.wait(lane.failed_visits)
        logger.warning("pod %s: %s", lane.pod.name, error)
        untold = {claim.identity for claim in desired.claims if lane.told.get(claim.identity) != claim}
        state: State = "Failed" if error.calls_for_somebody else "Pending"
        lane.replicas = {
            identity: replace(replica, state=state, reason=error.reason, message=str(error))
            if replica.state in ("Pending", "Loading", "Standby")
            or (replica.state == "Loaded" and identity in untold)
            else replica
            for identity, replica in lane.replicas.items()
        }

    def _silent(self, lane: Lane, error: BackendError) -> None:
        self._metrics.poll_errors.labels(error.reason).inc()
        if lane.fell_silent(error.reason, str(error), lasting=error.calls_for_somebody):
            logger.info("pod %s: %s", lane.pod.name, error)
        if lane.silence is not None:
            self.forget(lane)
        lane.due = time.monotonic() + min(WHILE_SILENT_S, self._tick)

    def _next_look(self, decision: Plan) -> float:
        """After how many seconds it is due."""
        if decision.actions or decision.crashes:
            return min(AFTER_ACTION_S, self._tick)
        if any(replica.state in ("Loading", "Pending") for replica in decision.replicas.values()):
            return min(WHILE_LOADING_S, self._tick)
        now = self._clock()
        waits = [attempt.retry_at - now for attempt in decision.memory.attempts.values()]
        return min([self._tick, *(wait for wait in waits if wait > 0)])


def _refusal(claim: Claim, message: str) -> Refusal:
    field, unknown, _ = message.partition(UNKNOWN_FIELD)
    if not unknown:
        return Refusal(claim, message)
    remedy = f"this pod's backend is older than the operator and does not know {field}: upgrade the backend"
    return Refusal(claim, remedy, outdated=True)
