"""The operator's own client and decisions against the real backend: the contract, from both of its ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from flexserv_operator.backend_client import BackendClient
from flexserv_operator.claims import merge
from flexserv_operator.desired import Desired, Model
from flexserv_operator.errors import BackendIncredible, BackendRefused
from flexserv_operator.inventory import Identity, Inventory
from flexserv_operator.visits import UNKNOWN_FIELD

from tests.support.models import model_path
from tests.support.server import RunningServer

POD_UID = "7d3f0c52-0000-4000-8000-000000000001"
TOKEN = "an-admin-token"
T = TypeVar("T")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A backend as the chart runs it beside an operator: declared models only, ready after the first sync."""
    flags = ("--device", "cpu", "--on-demand", "declared", "--ready-after-sync", "--admin-token", TOKEN)
    state = str(tmp_path_factory.mktemp("state"))
    with RunningServer(*flags, "--state-dir", state, env={"FLEXSERV_POD_UID": POD_UID}) as running:
        yield running


@pytest.fixture
async def client(tmp_path) -> AsyncIterator[BackendClient]:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    client = BackendClient(5, token)
    yield client
    await client.close()


@pytest.fixture
async def inventory(server: RunningServer, client: BackendClient) -> Callable[[], Awaitable[Inventory]]:
    return lambda: client.inventory(server.base_url, POD_UID)


def wanted(*models: Model) -> Desired:
    return merge("team", models)


def model(name: str, **fields: object) -> Model:
    kind = "embedding" if "MiniLM" in name else "serve"
    return Model(
        namespace="team",
        name=name.lower(),
        uid=f"uid-{name}",
        generation=1,
        created="2026-01-01T00:00:00Z",
        identity=Identity(kind, model_path(name), None),
        **fields,  # type: ignore[arg-type]
    )


async def until(probe: Callable[[], Awaitable[T | None]], timeout: float = 60) -> T:
    deadline = time.monotonic() + timeout
    while (value := await probe()) is None:
        assert time.monotonic() < deadline, f"not within {timeout} s"
        await asyncio.sleep(0.05)
    return value


async def test_a_fresh_backend_is_empty_not_synced_and_not_ready(server, inventory) -> None:
    seen = await inventory()
    assert (seen.models, seen.synced, seen.declared_hash, seen.pod_uid) == ((), False, None, POD_UID)
    health = server.client.get("/v1/flexserv/health")
    assert (health.status_code, health.json()["status"]) == (503, "starting")


async def test_a_mere_request_before_the_first_list_is_told_to_wait(server) -> None:
    reply = server.client.post("/v1/completions", json={"model": "org/any", "prompt": "x"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "not_synced")


async def test_a_declaration_comes_back_by_its_hash_and_opens_the_door_to_requests(
    server, client, inventory
) -> None:
    declaration = wanted(model("tiny-random-llama", served_name="team/llama", pinned=False)).declaration(
        time.time()
    )
    await client.declare(server.base_url, (await inventory()).instance_id, declaration)

    assert (await inventory()).declared_hash == declaration["hash"]
    reply = server.client.post(
        "/v1/completions", json={"model": "team/llama", "prompt": "x", "max_tokens": 2}
    )
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == "team/llama"
    refused = server.client.post("/v1/completions", json={"model": "org/other", "prompt": "x"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_declared")


async def test_a_declaration_with_settings_that_cannot_be_names_the_entry(server, client, inventory) -> None:
    bad = model("tiny-random-gpt2", chat_template_kwargs={"tokenize": False})
    declaration = wanted(bad, model("tiny-random-llama")).declaration(time.time())
    with pytest.raises(BackendRefused, match="tokenize") as refusal:
        await client.declare(server.base_url, (await inventory()).instance_id, declaration)
    assert refusal.value.entry is not None
    assert declaration["models"][refusal.value.entry]["model_id"] == bad.identity.model_id


async def test_a_declaration_with_a_setting_of_a_later_version_names_the_entry_and_the_setting(
    server, client, inventory
) -> None:
    declaration = wanted(model("tiny-random-llama"), model("tiny-random-gpt2")).declaration(time.time())
    declaration["models"][1]["setting_of_tomorrow"] = None
    with pytest.raises(BackendRefused) as refusal:
        await client.declare(server.base_url, (await inventory()).instance_id, declaration)
    assert refusal.value.entry == 1
    assert refusal.value.message.startswith(f"models[1].setting_of_tomorrow{UNKNOWN_FIELD}")


async def test_a_load_is_seen_through_to_the_end_with_the_owner_and_bytes_of_the_claim(
    server, client, inventory
) -> None:
    claim = wanted(model("tiny-random-gpt2", priority=3)).claims[0]
    instance = (await inventory()).instance_id
    assert await client.load(server.base_url, instance, claim.request()) == "started"

    async def resident():
        return (await inventory()).residents.get(claim.identity)

    found = await until(resident)
    assert found.owner == claim.owner
    assert found.bytes and found.bytes > 0
    assert await client.load(server.base_url, instance, claim.request()) == "loaded"


async def test_an_encoder_is_loaded_by_its_kind(server, client, inventory) -> None:
    claim = wanted(model("all-MiniLM-L6-v2", served_name="minilm")).claims[0]
    await client.load(server.base_url, (await inventory()).instance_id, claim.request())

    async def resident():
        return (await inventory()).residents.get(claim.identity)

    assert (await until(resident)).kind == "embedding"


async def test_a_missing_model_fails_with_the_code_that_the_operator_knows(server, client, inventory) -> None:
    identity = Identity("serve", "/models/no-such-folder", None)
    request = {"model_id": identity.model_id, "kind": identity.kind, "revision": None, "owner": "team/x#1"}
    instance = (await inventory()).instance_id
    try:
        await client.load(server.base_url, instance, request)
    except BackendRefused as refusal:
        assert refusal.code == "model_not_found"
        return

    async def failure():
        return (await inventory()).failures.get(identity)

    assert (await until(failure)).code == "model_not_found"


async def test_a_disowned_model_stays_without_owner(server, client, inventory) -> None:
    identity = Identity("serve", model_path("tiny-random-gpt2"), None)
    await client.disown(server.base_url, (await inventory()).instance_id, identity)
    left = (await inventory()).residents.get(identity)
    assert left is not None and left.owner is None


async def test_an_unloaded_model_is_gone_and_its_eviction_has_a_reason(server, client, inventory) -> None:
    identity = Identity("serve", model_path("tiny-random-gpt2"), None)
    instance = (await inventory()).instance_id
    await client.unload(server.base_url, instance, identity)
    seen = await inventory()
    assert seen.residents.get(identity) is None
    assert seen.evictions[identity].reason == "manual"
    await client.unload(server.base_url, instance, identity)


async def test_a_load_time_setting_that_is_taken_back_is_the_backends_own_again(
    server, client, inventory
) -> None:
    instance = (await inventory()).instance_id
    for asked in ({"dtype": "bfloat16"}, {}):
        claim = wanted(model("tiny-random-gpt2", load_settings=asked)).claims[0]
        assert await client.load(server.base_url, instance, claim.request()) == "started"

        async def as_asked(claim=claim):
            resident = (await inventory()).residents.get(claim.identity)
            return resident if resident and resident.requested_settings == claim.load_settings else None

        assert (await until(as_asked)).settings["dtype"] == asked.get("dtype", "auto")
    await client.unload(server.base_url, instance, claim.identity)


async def test_nothing_meant_for_another_instance_is_done(server, client, inventory) -> None:
    identity = Identity("serve", model_path("tiny-random-llama"), None)
    for call in (
        client.unload(server.base_url, "another", identity),
        client.declare(server.base_url, "another", wanted().declaration(0)),
        client.synced(server.base_url, "another"),
    ):
        with pytest.raises(BackendRefused) as refusal:
            await call
        assert (refusal.value.status, refusal.value.code) == (409, "wrong_instance")
    assert (await inventory()).residents.get(identity) is not None


async def test_an_address_that_another_pod_took_over_is_not_believed(server, client) -> None:
    with pytest.raises(BackendIncredible, match="pod uid"):
        await client.inventory(server.base_url, "another-pod")


async def test_without_the_admin_token_nothing_is_changed(server, inventory) -> None:
    stranger = BackendClient(5)
    with pytest.raises(BackendRefused) as refusal:
        await stranger.synced(server.base_url, (await inventory()).instance_id)
    await stranger.close()
    assert refusal.value.status == 401


async def test_synced_makes_the_backend_ready(server, client, inventory) -> None:
    await client.synced(server.base_url, (await inventory()).instance_id)
    assert (await inventory()).synced
    health = server.client.get("/v1/flexserv/health")
    assert (health.status_code, health.json()["status"], health.json()["pod_uid"]) == (200, "ok", POD_UID)
