"""Fake backends on addresses of loopback, all on one port, as the pods of one Service are."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web

from tests.support.fake_backend import Call, FakeBackend, Refusal


class Fleet:
    """Backends on addresses of loopback, all on one port, as the pods of one Service are."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.backends: dict[str, FakeBackend] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake backends", daemon=True)
        self._runners: list[web.AppRunner] = []

    def add(self, address: str, backend: FakeBackend) -> FakeBackend:
        """Serve `backend` on `address` (instead of another one there, if so)."""
        if address not in self.backends:
            asyncio.run_coroutine_threadsafe(self._listen(address), self._loop).result(timeout=10)
        self.backends[address] = backend
        return backend

    async def _listen(self, address: str) -> None:
        app = web.Application()

        async def answer(request: web.Request) -> web.StreamResponse:
            return await _answer(self.backends[address], request)

        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, self.port).start()
        self._runners.append(runner)

    async def _close(self) -> None:
        for runner in self._runners:
            await runner.cleanup()


@contextmanager
def fleet(port: int) -> Iterator[Fleet]:
    """A fleet whose servers live until the end of the block."""
    backends = Fleet(port)
    backends._thread.start()
    try:
        yield backends
    finally:
        asyncio.run_coroutine_threadsafe(backends._close(), backends._loop).result(timeout=10)
        backends._loop.call_soon_threadsafe(backends._loop.stop)
        backends._thread.join(timeout=10)
        backends._loop.close()


async def _answer(backend: FakeBackend, request: web.Request) -> web.StreamResponse:
    instance = request.headers.get("X-FlexServ-Instance")
    body = await request.json() if request.can_read_body else None
    backend.calls.append(Call(request.method, request.path, instance, body, time.time()))
    if backend.hang:
        await asyncio.sleep(60)
    await asyncio.sleep(backend.slowness)
    reads = request.method == "GET"
    try:
        wanted = None if reads and not backend.guards_reads else backend.token
        if wanted is not None and request.headers.get("Authorization") != f"Bearer {wanted}":
            raise Refusal(401, "invalid_api_key", "another token is needed")
        if reads:
            lie = backend.lie
            if isinstance(lie, bytes):
                return web.Response(body=lie, content_type="application/json")
            return web.json_response(backend.inventory())
        if instance is not None and instance != backend.instance_id:
            raise Refusal(409, "wrong_instance", f"this is {backend.instance_id}")
        status, content = backend.post(request.path, body)
    except Refusal as refusal:
        named = {"param": refusal.param, "code": refusal.code}
        error = {"message": str(refusal), "type": "server_error", **named}
        return web.json_response({"error": error}, status=refusal.status)
    return web.json_response(content, status=status)
