"""Every request counts once in the metrics: answered, failed, refused, or left by its client."""

import asyncio
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.request_metrics import RequestMetrics
from hf_transformers_backend.routes.disconnect import ClientGone, until_disconnect

CLIENT_CLOSED_REQUEST = 499
"""The status that a gone client would have got; it only shows in metrics."""


class Use(Protocol):
    """What metrics want to know of a request: its model's label, whether it waited for a load, its age."""

    @property
    def label(self) -> str | None: ...

    @property
    def cold(self) -> bool: ...

    @property
    def seconds(self) -> float: ...


@contextmanager
def refusals_counted(metrics: RequestMetrics, route: str) -> Iterator[None]:
    """Around reading and understanding a body: what is refused there has no model yet."""
    arrived = time.monotonic()
    try:
        yield
    except FlexServError as error:
        metrics.observe_request(route, error.status, None, False, time.monotonic() - arrived)
        raise


async def answer_counted(
    http: Request, metrics: RequestMetrics, use: Use, work: Coroutine[Any, Any, Response]
) -> Response:
    """The response that `work` makes, whole; it is cancelled when the client goes."""
    code = 500
    try:
        response = await until_disconnect(http.receive, work)
        code = response.status_code
        return response
    except ClientGone:
        code = CLIENT_CLOSED_REQUEST
        return Response(status_code=code)
    except BaseException as error:
        code = status_of(error)
        raise
    finally:
        metrics.observe_request(http.url.path, code, use.label, use.cold, use.seconds)


def status_of(error: BaseException) -> int:
    """The HTTP status that an error becomes."""
    if isinstance(error, FlexServError):
        return error.status
    return CLIENT_CLOSED_REQUEST if isinstance(error, ClientGone | asyncio.CancelledError) else 500
