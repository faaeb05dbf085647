"""Checks the indexes against lists straight from the API server, at the start and now and then."""

import logging
import time

from flexserv_operator.api_server import GROUP_VERSION, ApiServer
from flexserv_operator.backoff import Pace
from flexserv_operator.cluster import KINDS, Cluster
from flexserv_operator.errors import ApiServerError

logger = logging.getLogger(__name__)

PERIOD_S = 300
INCOMPLETE = Pace(0.2, 10)
"""How soon lists are asked for again that failed, or that the indexes do not hold yet."""


class Census:
    """Knows when the next check is due, on the monotonic clock."""

    def __init__(self, cluster: Cluster, api: ApiServer) -> None:
        self._cluster = cluster
        self._api = api
        self._vain = 0
        self.due_at = 0.0

    def hurry(self) -> None:
        """Check at the next opportunity."""
        self.due_at = 0.0

    async def take(self) -> bool:
        """Compare once. True if the indexes hold everything, now and from then on."""
        known = self._cluster.known()
        listed: set[str] = set()
        try:
            for kind in KINDS:
                listed |= await self._api.uids(kind, GROUP_VERSION if kind == "flexservmodels" else "v1")
        except ApiServerError as error:
            logger.warning("cannot list: %s", error)
            self._again_soon()
            return False
        self._cluster.compare(known, listed)
        if not self._cluster.complete:
            self._again_soon()
            return False
        self.due_at, self._vain = time.monotonic() + PERIOD_S, 0
        return True

    def _again_soon(self) -> None:
        self._vain += 1
        self.due_at = time.monotonic() + INCOMPLETE.wait(self._vain)
