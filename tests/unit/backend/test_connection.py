"""A connection without a request, over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from hf_transformers_backend.connection import Connection
from uvicorn.server import ServerState

LIMIT = 2
PATIENCE = 20
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"
Client = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Impatient(Connection):
    head_seconds = LIMIT


async def slow(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body, and answers its size after more than the limit."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await asyncio.sleep(1.5 * LIMIT)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1")]})
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture
async def connect() -> AsyncIterator[Client]:
    config = uvicorn.Config(slow, lifespan="off", log_config=None, http=Impatient)
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Impatient(config, state, {}), "127.0.0.1", 0)
    writers: list[asyncio.StreamWriter] = []

    async def client() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writers.append(writer)
        return reader, writer

    yield client
    for writer in writers:
        writer.close()
    server.close()
    await asyncio.wait_for(server.wait_closed(), PATIENCE)


async def answer(reader: asyncio.StreamReader) -> bytes:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    assert head.startswith(b"HTTP/1.1 200")
    return await reader.readexactly(1)


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET[:-2]])
async def test_a_connection_that_sends_no_whole_head_is_closed(connect: Client, sent: bytes) -> None:
    reader, writer = await connect()
    writer.write(sent)
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


async def test_a_head_that_comes_byte_by_byte_has_no_longer(connect: Client) -> None:
    reader, writer = await connect()

    async def drip() -> None:
        for byte in b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 10_000:
            writer.write(bytes([byte]))
            await asyncio.sleep(LIMIT / 20)

    dripping = asyncio.ensure_future(drip())
    try:
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
    except ConnectionResetError:
        pass  # bytes that nobody read were on their way
    finally:
        dripping.cancel()


async def test_half_a_head_after_an_answer_is_no_way_to_stay(connect: Client) -> None:
    reader, writer = await connect()
    writer.write(GET)
    assert await answer(reader) == b"0"
    writer.write(GET[:-2])
    assert await asyncio.wait_for(reader.read(), PATIENCE) == b""


async def test_neither_a_slow_body_nor_a_slow_answer_is_limited_by_it(connect: Client) -> None:
    reader, writer = await connect()
    writer.write(POST + b"a")
    await asyncio.sleep(1.5 * LIMIT)
    writer.write(b"b")
    assert await answer(reader) == b"2"
    writer.write(GET + GET)
    assert await answer(reader) + await answer(reader) == b"00"
