"""The layers before the routes: faults of ours, and bodies that are too large."""

import asyncio
import logging
from typing import Any

import httpx
import pytest
from hf_transformers_backend.boundary import BodyLimitMiddleware, FaultMiddleware


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the number of bytes that came."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


async def broken(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("secret detail")


async def broken_midway(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise RuntimeError("secret detail")


async def careless(scope: Any, receive: Any, send: Any) -> None:
    """Takes any failure of the body for a bad request, as frameworks do."""
    try:
        await echo(scope, receive, send)
    except Exception:
        await send({"type": "http.response.start", "status": 400, "headers": []})
        await send({"type": "http.response.body", "body": b"cannot parse"})


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def test_a_fault_is_a_json_500_and_its_traceback_is_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client(FaultMiddleware(broken)) as http:
        response = await http.get("/x")
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "secret" not in response.text
    assert "RuntimeError: secret detail" in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


async def test_a_fault_after_the_answer_began_cuts_the_connection() -> None:
    async with client(FaultMiddleware(broken_midway)) as http:
        with pytest.raises(RuntimeError):
            await http.get("/x")


@pytest.mark.parametrize("app", [echo, careless])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("size", "status"), [(0, 200), (100, 200), (101, 413)])
async def test_bodies_are_limited_by_length_and_by_count(
    app: Any, chunked: bool, size: int, status: int
) -> None:
    async def pieces() -> Any:
        for _ in range(size):
            yield b"a"

    async with client(BodyLimitMiddleware(app, limit_bytes=100)) as http:
        response = await http.post("/x", content=pieces() if chunked else b"a" * size)
    assert response.status_code == status
    if status == 200:
        assert response.text == str(size)
    else:
        assert response.json()["error"]["code"] == "request_too_large"
        assert response.headers["connection"] == "close"


async def waiting(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("draining", [True, False])
async def test_a_request_that_is_cut_by_a_stop_is_told_so(draining: bool) -> None:
    async with client(FaultMiddleware(waiting, is_draining=lambda: draining)) as http:
        request = asyncio.ensure_future(http.get("/x"))
        await asyncio.sleep(0)
        request.cancel()
        if not draining:
            with pytest.raises(asyncio.CancelledError):
                await request
            return
        response = await request
    assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("app", [echo, careless])
async def test_a_body_that_stops_coming_is_given_up(app: Any) -> None:
    async def halting() -> Any:
        yield b"a"
        await asyncio.sleep(30)

    limited = BodyLimitMiddleware(app, limit_bytes=100, idle_seconds=0.05)
    async with client(limited) as http:
        response = await asyncio.wait_for(http.post("/x", content=halting()), 5)
    assert (response.status_code, response.json()["error"]["code"]) == (408, "request_timeout")
    assert response.headers["connection"] == "close"


async def test_a_cancellation_that_comes_together_with_a_piece_of_the_body_counts() -> None:
    went_on = False

    async def reading(scope: Any, receive: Any, send: Any) -> None:
        nonlocal went_on
        await receive()
        await asyncio.sleep(0)
        went_on = True

    async def receive() -> Any:
        request.cancel()
        return {"type": "http.request", "body": b"abc", "more_body": True}

    async def send(message: Any) -> None:
        raise AssertionError(f"nobody is there to be answered {message}")

    limited = BodyLimitMiddleware(reading, limit_bytes=100)
    scope = {"type": "http", "headers": [], "method": "POST", "path": "/"}
    request = asyncio.ensure_future(limited(scope, receive, send))
    with pytest.raises(asyncio.CancelledError):
        await request
    assert not went_on


async def test_waiting_for_the_client_to_leave_has_no_limit() -> None:
    async def until_gone(scope: Any, receive: Any, send: Any) -> None:
        await echo(scope, receive, send)
        await asyncio.wait_for(receive(), 20)

    messages = iter([{"type": "http.request", "body": b"abc"}])
    sent: list[Any] = []

    async def receive() -> Any:
        message = next(messages, None)
        if message is None:
            await asyncio.sleep(0.1)
            message = {"type": "http.disconnect"}
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    limited = BodyLimitMiddleware(until_gone, limit_bytes=100, idle_seconds=0.02)
    await limited({"type": "http", "headers": [], "method": "POST", "path": "/"}, receive, send)
    assert [message.get("status") for message in sent] == [200, None]
