"""Every request gets an id, which its log lines and its answer carry, and a line that says how it ended.

A client's own `X-Request-Id` is taken over if it is sane.
"""

import logging
import re
import time
import uuid

from starlette.datastructures import Headers, MutableHeaders

from hf_transformers_backend.activity import App, Message, Receive, Scope, Send
from hf_transformers_backend.request_id import request_id_of

logger = logging.getLogger(__name__)

HEADER = "x-request-id"
SANE_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")


class RequestLogMiddleware:
    """The outermost layer: gives each request its id, and logs how it was answered."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request_id = given if SANE_ID.fullmatch(given) else uuid.uuid4().hex
        began, status = time.monotonic(), None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        with request_id_of(request_id):
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                _log_end(scope, status, time.monotonic() - began)


def _log_end(scope: Scope, status: int | None, seconds: float) -> None:
    """What does something is worth a line; probes, scrapes and looks come too often for one."""
    level = logging.INFO if scope["method"] == "POST" else logging.DEBUG
    answer = "not answered" if status is None else f"answered {status}"
    logger.log(
        level,
        "%s %s %s after %.3f s",
        scope["method"],
        scope["path"],
        answer,
        seconds,
        extra={"status": status, "seconds": round(seconds, 3)},
    )
