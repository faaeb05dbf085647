"""How the three text routes are served.

Begin, then answer whole or as a stream, and account for it in every case.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from hf_transformers_backend.boundary import cut_by_shutdown
from hf_transformers_backend.generation.engines import Engines
from hf_transformers_backend.generation.request import GenerationRequest
from hf_transformers_backend.generation.serving import IndexedEvent, Leases, ServedRequest, TextAnswer
from hf_transformers_backend.generation.sse import StreamWriter, last_words, write_stream
from hf_transformers_backend.request_metrics import RequestMetrics
from hf_transformers_backend.routes.accounting import CLIENT_CLOSED_REQUEST, status_of
from hf_transformers_backend.routes.disconnect import ClientGone, until_disconnect
from hf_transformers_backend.routes.event_stream import EventStreamResponse


@dataclass(frozen=True, slots=True)
class Form:
    """The two forms of an API's answer."""

    whole: Callable[[TextAnswer, list[IndexedEvent]], dict[str, Any]]
    writer: Callable[[TextAnswer], StreamWriter]


class TextRoutes:
    """Serves validated requests of any of the text APIs."""

    def __init__(self, leases: Leases, engines: Engines, metrics: RequestMetrics) -> None:
        self._leases = leases
        self._engines = engines
        self._metrics = metrics

    async def serve(self, http: Request, asked: GenerationRequest, form: Form) -> Response:
        """The response. What the caller got wrong is raised before a stream begins."""
        served = ServedRequest(self._leases, self._engines, asked.model)
        route = http.url.path
        try:
            answer = await until_disconnect(http.receive, served.start(asked))
            if asked.stream:
                return self._stream(route, served, answer, form)
            events = await until_disconnect(http.receive, _collected(answer))
            body = form.whole(answer, events)
        except BaseException as error:
            served.close()
            self._observe(route, served, status_of(error))
            if isinstance(error, ClientGone):
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            raise
        served.close()
        self._observe(route, served, 200)
        return JSONResponse(body)

    def _stream(self, route: str, served: ServedRequest, answer: TextAnswer, form: Form) -> Response:
        def over() -> None:
            served.close()
            if not served.finished:
                self._metrics.stream_aborted()
            self._observe(route, served, 200 if served.finished else CLIENT_CLOSED_REQUEST)

        writer = form.writer(answer)
        return EventStreamResponse(
            write_stream(writer, answer.events()), over, lambda: last_words(writer, cut_by_shutdown())
        )

    def _observe(self, route: str, served: ServedRequest, code: int) -> None:
        self._metrics.observe_request(route, code, served.label, served.cold, served.seconds)


async def _collected(answer: TextAnswer) -> list[IndexedEvent]:
    return [event async for event in answer.events()]
