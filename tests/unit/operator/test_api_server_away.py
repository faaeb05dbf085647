"""The operator while the API server does not answer: no storm of calls, and no cycle without an end."""

import asyncio
import time

import pytest
from flexserv_operator.backend_client import BackendClient
from flexserv_operator.cluster import Cluster
from flexserv_operator.config import Config
from flexserv_operator.errors import ApiServerUnreachable
from flexserv_operator.metrics import Metrics
from flexserv_operator.reconcile import Reconciler
from flexserv_operator.report import WRITES_AT_A_TIME, Report, Reporter

from tests.support.operator_values import model


class AwayApi:
    """An API server behind a broken line: every call fails after `seconds`."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.calls = 0

    async def _fail(self) -> None:
        self.calls += 1
        await asyncio.sleep(self.seconds)
        raise ApiServerUnreachable("no answer")

    async def uids(self, plural, version="v1"):
        await self._fail()

    async def patch_status(self, of, patch):
        await self._fail()


async def test_a_hundred_statuses_take_no_longer_than_one_and_are_left_to_a_later_cycle():
    api = AwayApi(0.2)
    reporter = Reporter(api, Metrics(), time.time)
    reports = [Report(model(f"m{n}"), {}, {"phase": "Loaded"}) for n in range(100)]
    begin = time.monotonic()
    assert not await reporter.write(reports)
    assert time.monotonic() - begin < 1
    assert api.calls == WRITES_AT_A_TIME
    await reporter.write(reports)
    assert api.calls == 2 * WRITES_AT_A_TIME


@pytest.fixture
def api():
    return AwayApi()


@pytest.fixture
async def reconciler(api):
    config = Config(_cli_parse_args=["--namespace", "team", "--backend-service", "flexserv"])
    cluster = Cluster("team", "flexserv", adopt_unreferenced=True)
    made = Reconciler(config, cluster, api, BackendClient(1), Metrics())
    yield made
    await made.stop()


async def test_lists_that_fail_are_asked_for_less_and_less(reconciler, api):
    reconciler.start()
    end = time.monotonic() + 2
    while time.monotonic() < end:
        reconciler.mark_dirty()
        await asyncio.sleep(0.02)
    assert 2 <= api.calls <= 5
    assert reconciler.alive
