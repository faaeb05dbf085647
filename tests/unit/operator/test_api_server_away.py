"""The operator while the API server does not answer: no storm of calls, and no cycle without an end."""

import asyncio
import math
import time

import pytest
from flexserv_operator.backend_client import BackendClient
from flexserv_operator.census import INCOMPLETE
from flexserv_operator.cluster import Cluster
from flexserv_operator.config import Config
from flexserv_operator.errors import (
    ApiServerError,
    ApiServerForbids,
    ApiServerUnreachable,
    BackendUnreachable,
)
from flexserv_operator.metrics import Metrics
from flexserv_operator.pods import Service, read_pod
from flexserv_operator.reconcile import Reconciler
from flexserv_operator.report import AGAIN, WRITES_AT_A_TIME, Report, Reporter

from tests.support.operator_values import model

SERVICE = Service("flexserv", {"app": "flexserv"}, 8001)
POD = read_pod(
    {
        "metadata": {"name": "p", "uid": "u", "labels": {"app": "flexserv"}},
        "spec": {},
        "status": {"phase": "Running", "podIP": "10.0.0.1"},
    }
)


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

    async def patch_status(self, of, patch, version):
        await self._fail()


class PickyApi:
    """An API server that refuses some statuses, or all Events."""

    def __init__(self, refused: Exception, names=(), events=False) -> None:
        self.refused, self.names, self.events = refused, names, events
        self.written: list[str] = []
        self.tried: list[str] = []

    async def patch_status(self, of, patch, version):
        self.tried.append(of.name)
        if of.name in self.names:
            raise self.refused
        self.written.append(of.name)

    async def post_event(self, of, kind, reason, message):
        self.tried.append(f"event of {of.name}")
        if self.events:
            raise self.refused


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def to_write(count: int) -> list[Report]:
    status = {"phase": "Loaded", "ready": "1/1", "conditions": []}
    ready = {"type": "Ready", "status": "True", "reason": "Loaded", "message": ""}
    return [Report(model(f"m{n}"), {}, {**status, "conditions": [ready]}, "1") for n in range(count)]


async def test_a_hundred_statuses_take_no_longer_than_one_and_are_left_to_a_later_cycle():
    api, clock = AwayApi(1), Clock()
    reporter = Reporter(api, Metrics(), clock)
    begin = time.monotonic()
    assert not await reporter.write(to_write(100))
    assert time.monotonic() - begin < 8
    assert api.calls == WRITES_AT_A_TIME
    clock.now += AGAIN.wait(1)
    await reporter.write(to_write(100))
    assert api.calls == 2 * WRITES_AT_A_TIME


@pytest.mark.parametrize("away", [ApiServerUnreachable, ApiServerForbids])
async def test_an_api_server_that_takes_no_status_is_asked_less_and_less(away):
    reports, clock = to_write(100), Clock()
    api = PickyApi(away("no"), {report.model.name for report in reports})
    reporter, rounds = Reporter(api, Metrics(), clock), []
    for _ in range(60):
        before = len(api.tried)
        assert not await reporter.write(reports)
        rounds.append(len(api.tried) - before)
        clock.now += 1
    assert [second for second, tried in enumerate(rounds) if tried] == [0, 1, 3, 7, 15, 30, 45]
    assert max(rounds) <= WRITES_AT_A_TIME


async def test_one_status_that_is_refused_holds_up_no_other_and_is_tried_less_and_less():
    api, clock = PickyApi(ApiServerError("422: too long"), {"m1"}), Clock()
    reporter = Reporter(api, Metrics(), clock)
    for second in range(8):
        clock.now = 1000.0 + second
        await reporter.write(to_write(3))
    assert api.tried.count("m1") == 4
    assert {"m0", "m2"} == set(api.written)
    clock.now += 60
    api.names = ()
    assert await reporter.write(to_write(3)[1:2])
    assert api.written[-1] == "m1"


async def test_events_that_cannot_be_posted_hold_up_no_status():
    api = PickyApi(ApiServerUnreachable("no answer"), events=True)
    assert await Reporter(api, Metrics(), Clock()).write(to_write(100))
    assert len(api.written) == 100
    assert len([call for call in api.tried if call.startswith("event")]) <= WRITES_AT_A_TIME


async def test_a_fault_of_ours_is_not_taken_for_one_of_the_api_server():
    api = PickyApi(KeyError("ours"), {"m7"})
    with pytest.raises(KeyError, match="ours"):
        await Reporter(api, Metrics(), Clock()).write(to_write(10))


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
    begin = time.monotonic()
    reconciler.start()
    while time.monotonic() < begin + 2 or api.calls < 2:
        reconciler.mark_dirty()
        await asyncio.sleep(0.02)
    # The n-th comes after 0.2 + 0.4 + 0.8 + ... s.
    assert api.calls <= 1 + math.log2((time.monotonic() - begin) / INCOMPLETE.first + 1)
    assert reconciler.alive


async def test_a_clock_that_is_set_back_does_not_keep_the_operator_from_looking(monkeypatch):
    true_time, offset = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: true_time() + offset)
    flags = ("--namespace", "team", "--backend-service", "flexserv", "--tick-seconds", "0.2")
    cluster, pods = Cluster("team", "flexserv", adopt_unreferenced=True), SilentPods()
    cluster.attach(
        {"flexservmodels": {}, "services": {"s": [SERVICE]}, "pods": {POD.uid: [POD]}},
    )
    made = Reconciler(Config(_cli_parse_args=list(flags)), cluster, QuietApi(), pods, Metrics())
    made.start()
    try:
        await looks(pods, 2)
        offset = -3600.0
        await looks(pods, pods.looks + 4)
    finally:
        await made.stop()


class QuietApi:
    """Lists what is indexed."""

    async def uids(self, plural, version="v1"):
        return {"services": {"s"}, "pods": {POD.uid}}.get(plural, set())


class SilentPods:
    """Counts looks at pods, none of which answers."""

    looks = 0

    async def inventory(self, url, pod_uid):
        self.looks += 1
        raise BackendUnreachable("no answer")

    async def close(self):
        pass


async def looks(pods: SilentPods, count: int) -> None:
    async with asyncio.timeout(60):
        while pods.looks < count:
            await asyncio.sleep(0.02)
