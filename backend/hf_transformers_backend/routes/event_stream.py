"""A response of server-sent events that always says when it is over, however it ends."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from hf_transformers_backend.routes.disconnect import disconnected

_log = logging.getLogger(__name__)

STALLED_SECONDS = 120.0
"""How long a client may take nothing of its stream, once the sockets are full, before it counts as gone."""
LAST_WORDS_SECONDS = 1.0


class EventStreamResponse(Response):
    """`on_close` is called once, even if the client is gone before the first byte: a generator that never
    started would never run its own `finally`. `last_words` are the bytes with which a stream ends that is
    cancelled, as the server's stop does when it cannot wait any longer.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        on_close: Callable[[], None] = lambda: None,
        last_words: Callable[[], bytes] = bytes,
        stalled_seconds: float = STALLED_SECONDS,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._chunks = chunks
        self._on_close = on_close
        self._last_words = last_words
        self._stalled_seconds = stalled_seconds
        self._begun = self._ended = False
        self.init_headers({"cache-control": "no-cache", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send chunk by chunk until the end or until the client goes."""
        sending: asyncio.Future[Any] = asyncio.ensure_future(self._send(send))
        gone: asyncio.Future[Any] = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except TimeoutError:
            _log.info("a client took nothing of its stream for %g s: cut off", self._stalled_seconds)
        except OSError:
            pass  # the server's way to say that the client is gone
        except asyncio.CancelledError:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await self._say_last_words(send)
            raise
        finally:
            self._on_close()
            for future in (sending, gone):
                future.cancel()
            await asyncio.gather(sending, gone, return_exceptions=True)
            await self._chunks.aclose()

    async def _say_last_words(self, send: Send) -> None:
        """To a client that does not read they are not said."""
        if self._begun and not self._ended:
            with contextlib.suppress(OSError, TimeoutError):
                body = {"type": "http.response.body", "body": self._last_words(), "more_body": False}
                await asyncio.wait_for(send(body), LAST_WORDS_SECONDS)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        self._begun = True
        async for chunk in self._chunks:
            async with asyncio.timeout(self._stalled_seconds):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._ended = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def init_headers(self, headers: Any = None) -> None:
        """A stream has no content-length."""
        super().init_headers(headers)
        self.raw_headers = [header for header in self.raw_headers if header[0] != b"content-length"]
