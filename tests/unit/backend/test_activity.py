"""Requests in flight: a stream counts to its last byte, and only inference counts."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hf_transformers_backend.activity import INFERENCE_ROUTES, ActivityMiddleware, ActivityTracker
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.eventually import eventually

CHAT = "/v1/chat/completions"


async def drive(app: Any, scope: dict[str, Any], sent: list[dict[str, Any]]) -> None:
    requests = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> dict[str, Any]:
        for message in requests:
            return message
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)


def request_scope(path: str = CHAT, method: str = "POST", **changes: Any) -> dict[str, Any]:
    return {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", **changes}


async def test_a_stream_counts_until_its_last_byte_was_sent() -> None:
    tracker = ActivityTracker()
    counts: list[int] = []
    go_on = asyncio.Event()

    async def tokens() -> AsyncIterator[bytes]:
        yield b"first"
        counts.append(tracker.active)
        await go_on.wait()
        yield b"last"
        counts.append(tracker.active)

    async def chat(request: Request) -> Response:
        return StreamingResponse(tokens())

    app = ActivityMiddleware(Starlette(routes=[Route(CHAT, chat, methods=["POST"])]), tracker)
    sent: list[dict[str, Any]] = []
    running = asyncio.create_task(drive(app, request_scope(), sent))
    async with asyncio.timeout(10):
        while not counts:
            await asyncio.sleep(0)
        assert tracker.by_route()[CHAT] == 1
        go_on.set()
        await running
    assert counts == [1, 1]
    assert tracker.active == 0
    assert b"".join(message.get("body", b"") for message in sent) == b"firstlast"


async def test_work_after_the_answer_does_not_count() -> None:
    tracker = ActivityTracker()
    seen: list[int] = []

    async def chat(request: Request) -> Response:
        return JSONResponse({}, background=BackgroundTask(lambda: seen.append(tracker.active)))

    app = ActivityMiddleware(Starlette(routes=[Route(CHAT, chat, methods=["POST"])]), tracker)
    await drive(app, request_scope(), [])
    assert seen == [0]


async def test_an_app_that_raises_is_not_counted_for_ever() -> None:
    tracker = ActivityTracker()

    async def broken(scope: Any, receive: Any, send: Any) -> None:
        assert tracker.active == 1
        raise LookupError

    with pytest.raises(LookupError):
        await drive(ActivityMiddleware(broken, tracker), request_scope(), [])
    assert tracker.active == 0


async def test_a_client_that_goes_is_not_counted_for_ever() -> None:
    tracker = ActivityTracker()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    running = asyncio.create_task(drive(ActivityMiddleware(endless, tracker), request_scope(), []))
    await asyncio.sleep(0)
    assert tracker.active == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tracker.active == 0


@pytest.mark.parametrize(
    ("scope", "counted"),
    [
        *((request_scope(path), True) for path in INFERENCE_ROUTES),
        (request_scope("/prefix" + CHAT, root_path="/prefix"), True),
        (request_scope(method="OPTIONS"), False),
        (request_scope("/v1/models", method="GET"), False),
        (request_scope("/health", method="GET"), False),
        (request_scope("/metrics", method="GET"), False),
        (request_scope("/v1/flexserv/models/load"), False),
        (request_scope("/v1/chat/completions/made-up"), False),
        ({"type": "lifespan"}, False),
        ({"type": "websocket", "path": CHAT}, False),
    ],
    ids=lambda value: (
        value if isinstance(value, bool) else f"{value.get('method', value['type'])} {value.get('path')}"
    ),
)
async def test_only_inference_counts(scope: dict[str, Any], counted: bool) -> None:
    tracker = ActivityTracker()
    seen: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(tracker.active)

    await drive(ActivityMiddleware(app, tracker), scope, [])
    assert seen == [int(counted)]
    assert set(tracker.by_route()) == set(INFERENCE_ROUTES)


async def test_who_waits_for_a_load_is_waited_for_and_is_no_inference() -> None:
    tracker = ActivityTracker()
    seen: list[tuple[int, int]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((tracker.active, tracker.unfinished))

    for path in ("/load_model", "/v1/flexserv/models/load", CHAT, "/reset"):
        await drive(ActivityMiddleware(app, tracker), request_scope(path), [])
    assert seen == [(0, 1), (0, 1), (1, 1), (0, 0)]
    assert tracker.unfinished == 0


async def test_requests_side_by_side_are_all_counted() -> None:
    tracker = ActivityTracker()
    go_on = asyncio.Event()

    async def chat(request: Request) -> Response:
        await go_on.wait()
        return JSONResponse({})

    app = Starlette(routes=[Route(route, chat, methods=["POST"]) for route in INFERENCE_ROUTES])
    transport = httpx.ASGITransport(ActivityMiddleware(app, tracker))
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://backend") as client,
        asyncio.timeout(10),
    ):
        calls = [asyncio.create_task(client.post(route)) for route in INFERENCE_ROUTES * 3]
        while tracker.active < len(calls):
            await asyncio.sleep(0)
        assert set(tracker.by_route().values()) == {3}
        go_on.set()
        assert {call.status_code for call in await asyncio.gather(*calls)} == {200}
    eventually(lambda: tracker.active == 0, timeout=5)
