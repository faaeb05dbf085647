"""The operator's own writes, one by one: what the API server takes and refuses of them."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from flexserv_operator.api_server import ApiServer
from flexserv_operator.cluster import Listed, read_listed
from flexserv_operator.errors import ApiServerForbids, ObjectChanged, ObjectGone
from flexserv_operator.metrics import Metrics
from flexserv_operator.report import Report, Reporter
from flexserv_operator.status import build

from tests.support.operator_world import OPERATOR_TOKEN, World


@pytest.fixture
async def api(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ApiServer]:
    """Logged in with the rights of the Role."""
    monkeypatch.setenv("KUBECONFIG", str(world.plane.kubeconfig(OPERATOR_TOKEN)))
    connected = await ApiServer.connect(world.namespace)
    yield connected
    await connected._api._session.aclose()


def first_status(listed: Listed, service: str) -> Report:
    status = build(listed.model, {}, None, service, {}, time.time())
    return Report(listed.model, {}, status, listed.version)


async def test_of_two_first_statuses_on_the_same_ground_only_one_is_written(world: World, api: ApiServer):
    listed = read_listed(world.apply("chat", model="org/chat"))
    written = [
        await Reporter(api, Metrics(), time.monotonic).write([first_status(listed, service)])
        for service in ("flexserv", "other")
    ]
    assert written == [True, False]
    assert world.status("chat")["backend"] == "flexserv"


async def test_a_status_is_not_written_into_a_later_object_of_the_same_name(world: World, api: ApiServer):
    listed = read_listed(world.apply("chat", model="org/chat"))
    world.delete("chat")
    with pytest.raises(ObjectGone):
        await api.patch_status(listed.model, {"phase": "Loaded"}, listed.version)
    world.apply("chat", model="org/chat")
    with pytest.raises(ObjectChanged):
        await api.patch_status(listed.model, {"phase": "Loaded"}, listed.version)
    assert world.status("chat") == {}


async def test_a_role_without_a_right_is_told_from_an_api_server_that_is_away(world: World, api: ApiServer):
    listed = read_listed(world.apply("chat", model="org/chat"))
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{world.namespace}"
    world.plane.call("DELETE", f"{rbac}/rolebindings/operator")

    async def refused() -> bool:
        try:
            await api.patch_status(listed.model, {"phase": "Loaded"}, listed.version)
        except ApiServerForbids:
            return True
        except ObjectChanged:
            pass  # it was taken at first: the rights change a moment after the object
        await asyncio.sleep(0.2)
        return False

    world.soon(lambda: world.plane.call("GET", f"{rbac}/rolebindings")["items"] == [])
    deadline = time.monotonic() + 30
    while not await refused():
        assert time.monotonic() < deadline
