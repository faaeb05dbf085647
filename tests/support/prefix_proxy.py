"""A reverse proxy on loopback that serves a backend under a path prefix, the way an ingress does."""

import threading
from types import TracebackType

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.eventually import eventually

PREFIX = "/team/flexserv"
_DROPPED = {"connection", "content-length", "date", "server", "transfer-encoding"}


class PrefixProxy:
    """Forwards PREFIX and what is below it to `target` without the prefix; everything else is a 404."""

    def __init__(self, target: str) -> None:
        self._target = target
        app = Starlette(
            routes=[
                Route(PREFIX, self._forward, methods=["GET"]),
                Route(PREFIX + "/{path:path}", self._forward, methods=["GET", "POST"]),
            ]
        )
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self) -> "PrefixProxy":
        self._thread.start()
        eventually(lambda: self._server.started, 20)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{PREFIX}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop listening; may be called twice."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(20)

    async def _forward(self, request: Request) -> Response:
        path = "/" + request.path_params.get("path", "")
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        client = httpx.AsyncClient(base_url=self._target, timeout=60)
        upstream = client.build_request(
            request.method, path, headers=headers, content=await request.body(), params=request.query_params
        )
        try:
            reply = await client.send(upstream, stream=True)
        except httpx.ConnectError:
            await client.aclose()
            return PlainTextResponse("no backend", 502)

        async def body():
            try:
                async for piece in reply.aiter_raw():
                    yield piece
            finally:
                await reply.aclose()
                await client.aclose()

        kept = {name: value for name, value in reply.headers.items() if name.lower() not in _DROPPED}
        return StreamingResponse(body(), reply.status_code, headers=kept)
