"""What stands between the socket and the routes: a limit for bodies, and an answer for our own faults."""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from starlette.datastructures import Headers

from hf_transformers_backend.access import error_response
from hf_transformers_backend.activity import App, Message, Receive, Scope, Send
from hf_transformers_backend.errors import FlexServError, RequestTimeout, ServerFault, TooLarge, Unavailable

logger = logging.getLogger(__name__)

BODY_IDLE_SECONDS = 60.0
"""How long the next piece of a body may take: a client that sends nothing more must not stay for ever."""


class FaultMiddleware:
    """An exception that nobody expected becomes a JSON 500, logged with its traceback; a stream is cut.

    A request that the server's stop cancels becomes a 503, if its answer has not begun. `failed_with` is told
    of every such exception.
    """

    def __init__(
        self,
        app: App,
        is_draining: Callable[[], bool] = lambda: False,
        failed_with: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._is_draining = is_draining
        self._failed_with = failed_with

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def note(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, note)
        except asyncio.CancelledError:
            if not self._is_draining():
                raise
            if not started:
                await error_response(cut_by_shutdown())(scope, receive, send)
        except Exception as error:
            self._failed_with(error)
            if started:
                raise
            logger.exception("%s %s failed", scope["method"], scope["path"])
            fault = ServerFault("internal error; the server's log says more", code="internal_error")
            await error_response(fault)(scope, receive, send)


def cut_by_shutdown() -> FlexServError:
    """What a request gets that the server's stop could not wait for."""
    return Unavailable(
        "the server is shutting down and could not finish this request; ask another replica",
        code="draining",
        retry_after=1,
    )


class BodyLimitMiddleware:
    """Refuses bodies above a limit, by their declared length or while they come in, and those that stop
    coming.
    """

    def __init__(self, app: App, limit_bytes: int, idle_seconds: float = BODY_IDLE_SECONDS) -> None:
        self._app = app
        self._limit = limit_bytes
        self._idle_seconds = idle_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > self._limit:
            await self._refuse(self._too_large(), scope, receive, send)
            return
        received = 0
        started = complete = False
        fault: FlexServError | None = None

        async def count(message: Message) -> None:
            nonlocal started
            if fault is not None and not started:
                return  # the answer to a body that was cut off; ours follows
            started = started or message["type"] == "http.response.start"
            await send(message)

        async def receive_limited() -> Message:
            nonlocal received, complete, fault
            if complete:  # what comes now is the client's leaving, for which there is no limit
                return await receive()
            try:
                async with asyncio.timeout(self._idle_seconds):
                    message = await receive()
            except TimeoutError:
                fault = RequestTimeout(
                    f"no more of the request body came for {self._idle_seconds:g} s; send it again"
                )
                raise _BodyRefused from None
            complete = message["type"] != "http.request" or not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._limit:
                fault = self._too_large()
                raise _BodyRefused
            return message

        with contextlib.suppress(_BodyRefused):
            await self._app(scope, receive_limited, count)
        if fault is not None and not started:
            await self._refuse(fault, scope, receive, send)

    def _too_large(self) -> FlexServError:
        return TooLarge(
            f"the request body is larger than {self._limit} bytes, the server's --max-request-bytes"
        )

    async def _refuse(self, error: FlexServError, scope: Scope, receive: Receive, send: Send) -> None:
        response = error_response(error)
        response.headers["Connection"] = "close"
        await response(scope, receive, send)


class _BodyRefused(Exception):
    pass
