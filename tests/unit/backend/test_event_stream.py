"""A stream says that it is over, exactly once, however it ends; work for a gone client is cancelled."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hf_transformers_backend.routes.disconnect import ClientGone, until_disconnect
from hf_transformers_backend.routes.event_stream import EventStreamResponse


class Client:
    """One side of an ASGI connection; `leave` makes it go."""

    def __init__(self, *, broken_after: int | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self._broken_after = broken_after

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self._broken_after is not None and len(self.sent) >= self._broken_after:
            raise OSError("connection lost")
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Chunks:
    """Chunks of a stream; the last may be an error or never come. Knows whether it was ended properly."""

    def __init__(self, *chunks: bytes, error: Exception | None = None, forever: bool = False) -> None:
        self._chunks, self._error, self._forever = chunks, error, forever
        self.closed = 0
        self.cleaned = False

    def close(self) -> None:
        self.closed += 1

    async def __call__(self) -> AsyncGenerator[bytes, None]:
        try:
            for chunk in self._chunks:
                yield chunk
            if self._error is not None:
                raise self._error
            if self._forever:
                await asyncio.Event().wait()
        finally:
            self.cleaned = True


async def serve(client: Client, chunks: Chunks) -> None:
    response = EventStreamResponse(chunks(), chunks.close)
    await asyncio.wait_for(response({"type": "http"}, client.receive, client.send), 5)


async def test_a_whole_stream_arrives_and_is_closed() -> None:
    client, chunks = Client(), Chunks(b"a", b"b")
    await serve(client, chunks)
    assert client.body == b"ab"
    assert client.sent[0]["status"] == 200
    headers = dict(client.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert b"content-length" not in headers
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert (chunks.closed, chunks.cleaned) == (1, True)


async def test_a_client_that_goes_ends_a_stream_that_waits() -> None:
    client, chunks = Client(), Chunks(b"a", forever=True)
    serving = asyncio.create_task(serve(client, chunks))
    while client.body != b"a":
        await asyncio.sleep(0)
    client.left.set()
    await serving
    assert (chunks.closed, chunks.cleaned) == (1, True)


async def test_a_client_that_was_gone_before_the_first_byte_is_noticed() -> None:
    client, chunks = Client(), Chunks(forever=True)
    client.left.set()
    await serve(client, chunks)
    assert chunks.closed == 1


async def test_a_lost_connection_is_no_error_of_ours() -> None:
    client, chunks = Client(broken_after=1), Chunks(b"a", b"b")
    await serve(client, chunks)
    assert (chunks.closed, chunks.cleaned) == (1, True)


async def test_an_error_in_the_stream_is_raised_and_closes_it() -> None:
    client, chunks = Client(), Chunks(b"a", error=ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await serve(client, chunks)
    assert chunks.closed == 1


async def test_a_cancelled_server_closes_the_stream() -> None:
    client, chunks = Client(), Chunks(b"a", forever=True)
    serving = asyncio.create_task(serve(client, chunks))
    while client.body != b"a":
        await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert (chunks.closed, chunks.cleaned) == (1, True)


async def test_a_stream_that_is_cut_ends_with_its_last_words() -> None:
    client, chunks = Client(), Chunks(b"a", forever=True)
    response = EventStreamResponse(chunks(), chunks.close, lambda: b"sorry")
    serving = asyncio.create_task(response({"type": "http"}, client.receive, client.send))
    while client.body != b"a":
        await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert client.body == b"asorry"
    assert client.sent[-1]["more_body"] is False
    assert chunks.closed == 1


async def test_work_ends_with_its_result_or_error() -> None:
    async def work(result: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    client = Client()
    assert await until_disconnect(client.receive, work(5)) == 5
    with pytest.raises(ZeroDivisionError):
        await until_disconnect(client.receive, work(ZeroDivisionError()))


async def test_work_for_a_gone_client_is_cancelled() -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    client = Client()
    asyncio.get_running_loop().call_later(0.01, client.left.set)
    with pytest.raises(ClientGone):
        await asyncio.wait_for(until_disconnect(client.receive, work()), 5)
    assert cancelled.is_set()


async def test_a_client_that_takes_nothing_counts_as_gone() -> None:
    """Its place in the queue and its model would be held for ever."""
    client, chunks = Client(), Chunks(b"one", b"two", forever=True)

    async def send(message: Any) -> None:
        await client.send(message)
        if message.get("body") == b"two":
            await asyncio.Event().wait()

    response = EventStreamResponse(chunks(), chunks.close, stalled_seconds=0.05)
    await asyncio.wait_for(response({"type": "http"}, client.receive, send), 20)
    assert (chunks.closed, chunks.cleaned, client.body) == (1, True, b"onetwo")


async def test_a_slow_model_is_no_stalled_client() -> None:
    client = Client()

    async def slow() -> AsyncGenerator[bytes, None]:
        yield b"one"
        await asyncio.sleep(0.2)
        yield b"two"

    response = EventStreamResponse(slow(), lambda: None, stalled_seconds=0.05)
    await asyncio.wait_for(response({"type": "http"}, client.receive, client.send), 20)
    assert client.body == b"onetwo"
