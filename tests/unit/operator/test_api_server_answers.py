"""What the answers of an API server, or of what stands before it, mean for the operator."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import yaml
from flexserv_operator.api_server import ApiServer
from flexserv_operator.errors import (
    ApiServerError,
    ApiServerForbids,
    ApiServerUnreachable,
    ObjectChanged,
    ObjectGone,
)


def http(status: int, body: str) -> bytes:
    head = f"HTTP/1.1 {status} Whatever\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return (head + body).encode()


VERSION = http(200, '{"major": "1", "minor": "34", "gitVersion": "v1.34.0"}')
Answering = Callable[[int, str], Awaitable[ApiServer]]


@pytest.fixture
async def answering(tmp_path, monkeypatch) -> AsyncIterator[Answering]:
    """Connects to a server that gives every request one answer, except that for its version."""
    answer = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(VERSION if b"/version" in asked else answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://{host}:{port}"}}],
        "users": [{"name": "u", "user": {"token": "none"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    connected: list[ApiServer] = []

    async def connect(status: int, body: str) -> ApiServer:
        nonlocal answer
        answer = http(status, body)
        connected.append(await ApiServer.connect("team"))
        return connected[-1]

    yield connect
    for api in connected:
        await api._api._session.aclose()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, '{"message": "who are you"}', ApiServerForbids),
        (403, '{"message": "not you"}', ApiServerForbids),
        (404, '{"message": "not there"}', ObjectGone),
        (409, '{"message": "another one"}', ObjectChanged),
        (422, '{"message": "too long"}', ApiServerError),
        (400, '{"error": "of something in between"}', ApiServerError),
        (400, "[]", ApiServerError),
        (429, "Too many requests, please try again later.", ApiServerUnreachable),
        (500, "etcdserver: request timed out", ApiServerUnreachable),
        (503, "", ApiServerUnreachable),
        (200, "<html>", ApiServerError),
        (200, '{"items": [{}]}', ApiServerError),
    ],
)
async def test_every_answer_that_is_none_is_one_of_the_operators_errors(answering, status, body, error):
    api = await answering(status, body)
    with pytest.raises(ApiServerError) as caught:
        await api.uids("pods")
    assert type(caught.value) is error
