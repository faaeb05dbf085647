"""What stands between the socket and the routes: a limit for bodies, and an answer for our own faults."""

import contextlib
import logging

from starlette.datastructures import Headers

from hf_transformers_backend.access import error_response
from hf_transformers_backend.activity import App, Message, Receive, Scope, Send
from hf_transformers_backend.errors import ServerFault, TooLarge

logger = logging.getLogger(__name__)


class FaultMiddleware:
    """An exception that nobody expected becomes a JSON 500, logged with its traceback; a stream is cut."""

    def __init__(self, app: App) -> None:
        self._app = app

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
        except Exception:
            if started:
                raise
            logger.exception("%s %s failed", scope["method"], scope["path"])
            fault = ServerFault("internal error; the server's log says more", code="internal_error")
            await error_response(fault)(scope, receive, send)


class BodyLimitMiddleware:
    """Refuses bodies above a limit, by their declared length or while they come in."""

    def __init__(self, app: App, limit_bytes: int) -> None:
        self._app = app
        self._limit = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdigit() and int(declared) > self._limit:
            await self._refuse(scope, receive, send)
            return
        received = 0
        started = False

        async def count(message: Message) -> None:
            nonlocal started
            if received > self._limit and not started:
                return  # the answer to a body that was cut off; ours follows
            started = started or message["type"] == "http.response.start"
            await send(message)

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > self._limit:
                    raise _BodyTooLarge
            return message

        with contextlib.suppress(_BodyTooLarge):
            await self._app(scope, receive_limited, count)
        if received > self._limit and not started:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = TooLarge(
            f"the request body is larger than {self._limit} bytes, the server's --max-request-bytes"
        )
        response = error_response(error)
        response.headers["Connection"] = "close"
        await response(scope, receive, send)


class _BodyTooLarge(Exception):
    pass
