"""One lane per pod: its last look, its memory, and the visit that is under way. A slow pod only blocks its
own lane."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flexserv_operator.backend_client import BackendClient
from flexserv_operator.backoff import NOT_FAILURES, Pace, reason_of
from flexserv_operator.cluster import Pod
from flexserv_operator.decide import (
    Action,
    Declare,
    Load,
    Memory,
    Plan,
    Refusal,
    Sync,
    plan,
    rejected,
    standing,
)
from flexserv_operator.desired import Claim, Desired
from flexserv_operator.errors import BackendError, BackendRefused
from flexserv_operator.inventory import Identity, Inventory
from flexserv_operator.metrics import Metrics
from flexserv_operator.quarantine import Crash
from flexserv_operator.replica import Replica, unreachable
from flexserv_operator.unloads import Disown, Unload

logger = logging.getLogger(__name__)

AFTER_ACTION_S = 0.3
WHILE_LOADING_S = 1.0
WHILE_SILENT_S = 2.0
HINDERED = Pace(0.5, 60)
FORGIVEN_POLLS = 1
"""Looks in a row that may fail before a pod that answered counts as unreachable."""


@dataclass
class Lane:
    """What is known of one pod, and when it is to be looked at again (seconds of the epoch)."""

    pod: Pod
    asked: Desired | None = None
    """What the last visit began with; another value makes a new visit due."""
    due: float = 0.0
    memory: Memory = field(default_factory=Memory)
    seen: Mapping[Identity, Claim] = field(default_factory=dict)
    """The claims that `replicas` is about."""
    told: Mapping[Identity, Claim] = field(default_factory=dict)
    """The claims that the pod knows of and has taken."""
    replicas: Mapping[Identity, Replica] = field(default_factory=dict)
    crashes: Mapping[Identity, Crash] = field(default_factory=dict)
    silence: Replica | None = field(
        default_factory=lambda: unreachable("BackendUnreachable", "the pod has not answered yet")
    )
    """How every model looks while the pod does not answer; None once it does."""
    failed_polls: int = 0
    failed_visits: int = 0
    """Visits in a row that got an answer but could not do everything."""
    visit: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self.visit is not None and not self.visit.done()

    def may_tell(self, claim: Claim) -> bool:
        """Whether it is about to be known what this pod makes of the claim: not yet, but the pod answers."""
        if self.seen.get(claim.identity) == claim:
            return False
        return self.silence is None or (self.busy and self.failed_polls == 0)

    def replica(self, identity: Identity) -> Replica:
        """The model on this pod as last seen."""
        fresh = unreachable("BackendUnreachable", "the pod was not asked about this model yet")
        return self.silence or self.replicas.get(identity, fresh)


class Visitor:
    """Looks at a pod, decides, and acts: never two visits to one pod at a time."""

    def __init__(
        self, client: BackendClient, metrics: Metrics, tick: float, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._tick = tick
        self._clock = clock

    async def visit(self, lane: Lane, url: str, desired: Desired, declaration: Mapping[str, Any]) -> None:
        """One look and what follows from it. What went wrong with the pod is in the lane."""
        try:
            inventory = await self._client.inventory(url, lane.pod.uid)
        except BackendError as error:
            self._silent(lane, error)
            return
        lane.memory = replace(lane.memory, refusals=standing(desired, inventory, lane.memory))
        if lane.memory.refusals:
            declaration = desired.declaration(self._clock(), lane.memory.refusals)
        decision = plan(
            desired,
            declaration["hash"],
            inventory,
            lane.memory,
            self._clock(),
            oom_killed=lane.pod.oom_killed,
        )
        lane.memory, lane.replicas, lane.crashes = decision.memory, decision.replicas, decision.crashes
        lane.silence, lane.failed_polls = None, 0
        try:
            for action in decision.actions:
                await self._carry_out(lane, url, inventory, action, declaration)
        except BackendError as error:
            if self._left_out(lane, desired, declaration, error):
                return
            self._hindered(lane, desired, error)
        else:
            lane.failed_visits = 0
            lane.due = self._next_look(decision)
            lane.told = {claim.identity: claim for claim in desired.claims}
        lane.seen = {claim.identity: claim for claim in desired.claims}

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
        refusal = Refusal(claim, error.message.removeprefix(f"models[{error.entry}]."))
        logger.warning("pod %s: %s: %s", lane.pod.name, identity, refusal.message)
        lane.memory = replace(lane.memory, refusals={**lane.memory.refusals, identity: refusal})
        lane.due = self._clock() + min(AFTER_ACTION_S, self._tick)
        return True

    def _hindered(self, lane: Lane, desired: Desired, error: BackendError) -> None:
        """What was not done is still to do at the next look, which comes later and later while this goes
        on."""
        lane.failed_visits += 1
        lane.due = self._clock() + HINDERED.wait(lane.failed_visits)
        logger.warning("pod %s: %s", lane.pod.name, error)
        untold = {claim.identity for claim in desired.claims if lane.told.get(claim.identity) != claim}
        lane.replicas = {
            identity: replace(replica, state="Pending", reason=error.reason, message=str(error))
            if replica.state in ("Pending", "Loading", "Standby")
            or (replica.state == "Loaded" and identity in untold)
            else replica
            for identity, replica in lane.replicas.items()
        }

    def _silent(self, lane: Lane, error: BackendError) -> None:
        lane.failed_polls += 1
        self._metrics.poll_errors.labels(error.reason).inc()
        if lane.silence is not None or lane.failed_polls > FORGIVEN_POLLS:
            if lane.silence is None or lane.silence.message != str(error):
                logger.info("pod %s: %s", lane.pod.name, error)
            lane.silence = unreachable(error.reason, str(error))
        lane.due = self._clock() + min(WHILE_SILENT_S, self._tick)

    async def _carry_out(
        self, lane: Lane, url: str, inventory: Inventory, action: Action, declaration: Mapping[str, Any]
    ) -> None:
        instance = inventory.instance_id
        match action:
            case Declare():
                await self._client.declare(url, instance, declaration)
            case Unload():
                await self._unload(lane, url, instance, action)
            case Disown():
                await self._client.disown(url, instance, action.identity)
            case Load():
                await self._load(lane, url, instance, action.claim)
            case Sync():
                await self._client.synced(url, instance)
                logger.info("pod %s: synced", lane.pod.name)

    async def _unload(self, lane: Lane, url: str, instance: str, unload: Unload) -> None:
        logger.info("pod %s: unloading %s (%s)", lane.pod.name, unload.identity, unload.why)
        try:
            await self._client.unload(url, instance, unload.identity)
        except BackendError as error:
            self._metrics.unloads.labels("refused" if isinstance(error, BackendRefused) else "error").inc()
            raise
        self._metrics.unloads.labels("done").inc()

    async def _load(self, lane: Lane, url: str, instance: str, claim: Claim) -> None:
        logger.info("pod %s: loading %s", lane.pod.name, claim.identity)
        try:
            answer = await self._client.load(url, instance, claim.request())
        except BackendRefused as error:
            self._metrics.loads.labels("refused").inc()
            lane.memory = rejected(lane.memory, claim, error.code, error.message, self._clock())
            refused = (
                Replica("Pending", "Queued", error.message)
                if error.code in NOT_FAILURES
                else Replica("Failed", reason_of(error.code), error.message)
            )
            lane.replicas = {**lane.replicas, claim.identity: refused}
            logger.warning("pod %s: %s was refused: %s", lane.pod.name, claim.identity, error)
            return
        except BackendError:
            self._metrics.loads.labels("error").inc()
            raise
        self._metrics.loads.labels("already_loaded" if answer == "loaded" else "submitted").inc()
        if answer == "loaded":
            applied = {**lane.memory.applied, claim.identity: claim.load_key}
            lane.memory = replace(lane.memory, applied=applied)

    def _next_look(self, decision: Plan) -> float:
        now = self._clock()
        if decision.actions or decision.crashes:
            return now + min(AFTER_ACTION_S, self._tick)
        if any(replica.state in ("Loading", "Pending") for replica in decision.replicas.values()):
            return now + min(WHILE_LOADING_S, self._tick)
        retries = [
            attempt.retry_at for attempt in decision.memory.attempts.values() if attempt.retry_at > now
        ]
        return min([now + self._tick, *retries])
