"""A response of server-sent events that always says when it is over, however it ends."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hf_transformers_backend.routes.disconnect import disconnected


class EventStreamResponse(Response):
    """`on_close` is called once, even if the client is gone before the first byte: a generator that never
    started would never run its own `finally`.
    """

    media_type = "text/event-stream"

    def __init__(self, chunks: AsyncGenerator[bytes, None], on_close: Callable[[], None]) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._chunks = chunks
        self._on_close = on_close
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send chunk by chunk until the end or until the client goes."""
        sending: asyncio.Future[Any] = asyncio.ensure_future(self._send(send))
        gone: asyncio.Future[Any] = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except OSError:
            pass  # the server's way to say that the client is gone
        finally:
            self._on_close()
            for future in (sending, gone):
                future.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            await self._chunks.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def init_headers(self, headers: Any = None) -> None:
        """A stream has no content-length."""
        super().init_headers(headers)
        self.raw_headers = [header for header in self.raw_headers if header[0] != b"content-length"]
