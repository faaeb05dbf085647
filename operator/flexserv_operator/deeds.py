"""What a plan says, done: the calls to one pod, counted."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flexserv_operator.backend_client import BackendClient
from flexserv_operator.backoff import NOT_FAILURES, reason_of
from flexserv_operator.decide import rejected
from flexserv_operator.desired import Claim
from flexserv_operator.errors import BackendError, BackendRefused
from flexserv_operator.lanes import Lane
from flexserv_operator.metrics import Metrics
from flexserv_operator.plans import Action, Declare, Load, Sync
from flexserv_operator.replica import Replica
from flexserv_operator.unloads import Disown, Unload

logger = logging.getLogger(__name__)


class Deeds:
    """Carries out actions; raises BackendError for what was not done. A load that the pod refused is done:
    the lane remembers it."""

    def __init__(self, client: BackendClient, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._client = client
        self._metrics = metrics
        self._clock = clock

    async def carry_out(
        self, lane: Lane, url: str, instance: str, action: Action, declaration: Mapping[str, Any]
    ) -> None:
        """One action on the pod at `url`, which does nothing if it is another instance by now."""
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
