"""The client against a real HTTP server that behaves well, badly, or not at all."""

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from flexserv_operator.backend_client import MAX_ANSWER_BYTES, BackendClient
from flexserv_operator.errors import BackendError, BackendIncredible, BackendRefused, BackendUnreachable
from flexserv_operator.inventory import Identity
from lab.ports import free_port

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
GOOD = {"instance_id": "i", "pod_uid": "p", "synced": False, "models": []}
MODEL = Identity("serve", "org/m", None)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    """Start a server that answers everything with one function; returns its URL."""
    runners = []

    async def start(answer: Answer) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        port = free_port()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        runners.append(runner)
        return f"http://127.0.0.1:{port}"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[BackendClient]:
    client = BackendClient(timeout=30)
    yield client
    await client.close()


def answer_json(content, status=200) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(content, status=status)

    return answer


async def test_a_good_inventory(serve, client):
    inventory = await client.inventory(await serve(answer_json(GOOD)), "p")
    assert inventory.instance_id == "i" and inventory.models == ()


@pytest.mark.parametrize(
    "lie",
    [
        None,
        [],
        "text",
        {},
        {**GOOD, "synced": "perhaps"},
        {**GOOD, "models": [{}]},
        {**GOOD, "models": [{"model_id": "m", "kind": "other"}]},
        {**GOOD, "loading": [{"model_id": "m", "kind": "serve", "load_id": "1", "stage": "dreaming"}]},
        {
            **GOOD,
            "failed": [{"model_id": "m", "kind": "serve", "load_id": "1", "code": "x", "at": "yesterday"}],
        },
        {**GOOD, "instance_id": ""},
        {**GOOD, "pod_uid": "another pod"},
        {**GOOD, "pod_uid": None},
    ],
)
async def test_a_lie_is_not_believed(serve, client, lie):
    with pytest.raises(BackendIncredible):
        await client.inventory(await serve(answer_json(lie)), "p")


async def test_an_answer_that_never_ends_is_cut(serve, client):
    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(MAX_ANSWER_BYTES // 2**16 + 2):
            await response.write(b"x" * 2**16)
        return response

    with pytest.raises(BackendError, match="longer than"):
        await client.inventory(await serve(flood), "p")


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "a byte now and then"])
async def test_a_slow_pod_costs_no_more_than_the_timeout(serve, drip):
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if drip:
            await response.prepare(request)
        for _ in range(300):
            await asyncio.sleep(0.1)
            if drip:
                await response.write(b" ")
        return response

    client, url = BackendClient(timeout=0.5), await serve(slow)
    begin = time.monotonic()
    with pytest.raises(BackendUnreachable, match=r"within 0\.5 s"):
        await client.inventory(url, "p")
    assert time.monotonic() - begin < 15
    await client.close()


async def test_pods_that_hang_do_not_keep_the_good_one_from_being_asked(serve):
    hangs, asked = asyncio.Event(), 0

    async def hang(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await hangs.wait()
        return web.json_response(GOOD)

    client, bad, good = BackendClient(timeout=110), await serve(hang), await serve(answer_json(GOOD))
    looks = [asyncio.create_task(client.inventory(bad, "p")) for _ in range(110)]
    async with asyncio.timeout(60):
        while asked < len(looks):
            await asyncio.sleep(0.02)
        assert (await client.inventory(good, "p")).instance_id == "i"
    hangs.set()
    await asyncio.gather(*looks)
    await client.close()


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(json.dumps(GOOD).encode())])
async def test_an_answer_that_is_compressed_unasked_is_not_believed(serve, client, content):
    async def pack(request: web.Request) -> web.Response:
        return web.Response(body=content, headers={"Content-Encoding": "gzip"})

    with pytest.raises(BackendIncredible):
        await client.inventory(await serve(pack), "p")


@pytest.mark.parametrize("content", [b"sm\xf8rrebr\xf8d", "smørrebrød".encode()])
async def test_a_token_that_no_header_can_hold_is_an_error_with_a_reason(serve, tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    client = BackendClient(1, tmp_path / "token")
    with pytest.raises(BackendError, match="cannot read the admin token"):
        await client.inventory(await serve(answer_json(GOOD)), "p")
    await client.close()


async def test_nobody_there(client):
    with pytest.raises(BackendUnreachable):
        await client.inventory(f"http://127.0.0.1:{free_port()}", "p")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ({"error": {"message": "no such model", "code": "model_not_found"}}, "model_not_found"),
        ({"error": "boom"}, "http_404"),
        (["?"], "http_404"),
        (None, "http_404"),
    ],
)
async def test_a_refusal_has_the_code_of_its_body_or_of_its_status(serve, client, content, code):
    with pytest.raises(BackendRefused) as raised:
        await client.load(await serve(answer_json(content, 404)), "i", {})
    assert (raised.value.status, raised.value.code) == (404, code)


@pytest.mark.parametrize(
    ("param", "entry"),
    [("models[12].served_name", 12), ("models[3]", 3), ("models", None), ("served_name", None), (None, None)],
)
async def test_a_refusal_of_the_declared_list_says_which_entry_is_at_fault(serve, client, param, entry):
    url = await serve(answer_json({"error": {"code": None, "message": "no", "param": param}}, 400))
    with pytest.raises(BackendRefused) as refusal:
        await client.declare(url, "i-1", {"models": [], "hash": "x"})
    assert refusal.value.entry == entry


async def test_every_mutation_names_the_instance_that_it_is_meant_for(serve, client):
    seen = []

    async def record(request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        seen.append(
            (request.path.removeprefix("/v1/flexserv/"), request.headers["X-FlexServ-Instance"], body)
        )
        return web.json_response({}, status=202)

    url = await serve(record)
    await client.declare(url, "i", {"models": [], "hash": "h"})
    assert await client.load(url, "i", {"model_id": "m"}) == "started"
    await client.unload(url, "i", MODEL)
    await client.disown(url, "i", MODEL)
    await client.synced(url, "i")
    named = {"model_id": "org/m", "kind": "serve", "revision": None}
    assert seen == [
        ("declared", "i", {"models": [], "hash": "h"}),
        ("models/load", "i", {"model_id": "m"}),
        ("models/unload", "i", named),
        ("models/load", "i", {**named, "owner": None, "pin": False}),
        ("synced", "i", None),
    ]


async def test_the_token_is_read_again_for_every_call(serve, tmp_path):
    seen = []

    async def record(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response(GOOD)

    file = tmp_path / "token"
    client = BackendClient(timeout=30, admin_token_file=file)
    url = await serve(record)
    for token in ("one\n", "two"):
        file.write_text(token)
        await client.inventory(url, "p")
    file.unlink()
    with pytest.raises(BackendError, match="cannot read the admin token"):
        await client.inventory(url, "p")
    await client.close()
    assert seen == ["Bearer one", "Bearer two"]


async def test_a_proxy_of_the_environment_is_not_used(serve, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    client = BackendClient(timeout=30)
    await client.inventory(await serve(answer_json(GOOD)), "p")
    await client.close()
