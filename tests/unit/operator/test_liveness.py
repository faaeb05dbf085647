"""Liveness is the loop's heartbeat: it stops with the loop, and with nothing else."""

import asyncio

import kopf
import pytest
from flexserv_operator import handlers
from flexserv_operator.backend_client import BackendClient
from flexserv_operator.cluster import Cluster
from flexserv_operator.config import Config
from flexserv_operator.metrics import Metrics
from flexserv_operator.reconcile import STALE_BEATS, Reconciler

from tests.unit.operator.test_api_server_away import AwayApi


class WedgedApi(AwayApi):
    """An API server whose first call never ends: what no timeout would save."""

    async def uids(self, plural, version="v1"):
        self.calls += 1
        await asyncio.Event().wait()


class FaultyApi(AwayApi):
    """Stands for a fault of the operator's own, in every cycle."""

    async def uids(self, plural, version="v1"):
        self.calls += 1
        raise ZeroDivisionError


async def probe(api, tick: str = "0.01"):
    """A reconciler on `api`, and what /healthz asks."""
    config = Config(
        _cli_parse_args=[
            *("--namespace", "team", "--backend-service", "flexserv"),
            *("--tick-seconds", tick, "--poll-timeout-seconds", "0.01"),
        ]
    )
    cluster, registry = Cluster("team", "flexserv", True), kopf.OperatorRegistry()
    reconciler = Reconciler(config, cluster, api, BackendClient(1), Metrics())
    handlers.register(registry, cluster, reconciler, api)
    asked = next(h for h in registry._activities.get_all_handlers() if h.id == "loop")
    return reconciler, asked.fn


@pytest.fixture
async def stopping():
    made: list[Reconciler] = []
    yield made
    for reconciler in made:
        await reconciler.stop()


async def until(probe) -> None:
    async with asyncio.timeout(20):
        while not await probe():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("api", [WedgedApi(), FaultyApi()], ids=["never end", "fail"])
async def test_a_loop_without_a_whole_cycle_is_dead(stopping, api):
    reconciler, ask = await probe(api)
    stopping.append(reconciler)
    reconciler.start()

    async def refused() -> bool:
        try:
            await ask()
        except kopf.PermanentError:
            return True
        return False

    async def tried_again() -> bool:
        return api.calls > 1

    await until(refused)
    if isinstance(api, FaultyApi):
        await until(tried_again)
    else:
        assert api.calls == 1


async def test_the_loop_ends_when_told_also_at_the_very_moment_of_an_event():
    reconciler, _ = await probe(AwayApi(), tick="5")
    for _ in range(5):
        reconciler.start()
        await asyncio.sleep(0.05)
        reconciler.mark_dirty()
        async with asyncio.timeout(10):
            await reconciler.stop()


async def test_an_api_server_that_is_away_is_no_reason_to_restart_the_operator(stopping):
    api = AwayApi()
    reconciler, ask = await probe(api, tick="5")
    stopping.append(reconciler)
    reconciler.start()

    async def asked_twice() -> bool:
        reconciler.mark_dirty()
        return api.calls >= 2

    await until(asked_twice)
    assert "seconds_since_last_cycle" in await ask()
    assert STALE_BEATS * 5 > 20
