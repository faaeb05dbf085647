"""The OpenAI routes: read and understand the body, serve it, answer in the API's own objects."""

from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from hf_transformers_backend.generation.answer_chat import ChatChunks, chat_completion
from hf_transformers_backend.generation.answer_completion import CompletionChunks, text_completion
from hf_transformers_backend.generation.answer_responses import ResponseEvents, response
from hf_transformers_backend.generation.chat import understand_chat
from hf_transformers_backend.generation.completion import understand_completion
from hf_transformers_backend.generation.defaults import Defaults
from hf_transformers_backend.generation.engines import Engines
from hf_transformers_backend.generation.responses import understand_responses
from hf_transformers_backend.request_metrics import RequestMetrics
from hf_transformers_backend.routes.accounting import refusals_counted
from hf_transformers_backend.routes.audio import add_transcriptions
from hf_transformers_backend.routes.catalog import add_catalog
from hf_transformers_backend.routes.embeddings import add_embeddings
from hf_transformers_backend.routes.json_request import understood
from hf_transformers_backend.routes.openapi import INFERENCE, answers, json_body
from hf_transformers_backend.routes.text import Form, TextRoutes
from hf_transformers_backend.schemas.answers import ChatCompletion, ChatCompletionChunk, TextCompletion
from hf_transformers_backend.schemas.completions import ChatRequest, CompletionRequest
from hf_transformers_backend.schemas.response_object import ResponseEvent, ResponseObject
from hf_transformers_backend.schemas.responses import ResponsesRequest
from hf_transformers_backend.upstream.batch_pool import pool_limits

if TYPE_CHECKING:
    from hf_transformers_backend.backend import Backend


def build_router(backend: "Backend") -> APIRouter:
    """All routes under /v1 that OpenAI's client library knows."""
    router = APIRouter(prefix="/v1", tags=["openai"])
    settings, metrics = backend.settings, backend.metrics.requests
    engines = Engines(
        max_queue=settings.max_queue,
        metrics=metrics,
        defaults=Defaults.of(settings),
        pool=pool_limits(settings),
        images=backend.images,
        failed_with=backend.health.note,
    )
    text = TextRoutes(backend.residency, engines, metrics)
    _add_text_routes(router, text, metrics, settings.block_on_unexpected_fields)
    add_embeddings(router, backend)
    add_transcriptions(router, backend, engines)
    add_catalog(router, backend)
    return router


def _add_text_routes(
    router: APIRouter, text: TextRoutes, metrics: RequestMetrics, block_unexpected: bool
) -> None:
    @router.post(
        "/chat/completions",
        openapi_extra=json_body(ChatRequest, messages=[{"role": "user", "content": "Hello!"}], max_tokens=16),
        responses=answers(ChatCompletion, refusals=INFERENCE, events=ChatCompletionChunk, end_marker=True),
    )
    async def chat_completions(request: Request) -> Response:
        """Continue a conversation."""
        with refusals_counted(metrics, request.url.path):
            asked = await understood(request, partial(understand_chat, block_unexpected=block_unexpected))
        return await text.serve(
            request,
            asked,
            Form(
                whole=lambda answer, events: chat_completion(answer.model, (item.event for item in events)),
                writer=lambda answer: ChatChunks(answer.model, include_usage=asked.include_usage),
            ),
        )

    @router.post(
        "/completions",
        openapi_extra=json_body(CompletionRequest, prompt="Once upon a time", max_tokens=16),
        responses=answers(TextCompletion, refusals=INFERENCE, events=TextCompletion, end_marker=True),
    )
    async def completions(request: Request) -> Response:
        """Continue one or several texts."""
        with refusals_counted(metrics, request.url.path):
            asked = await understood(
                request, partial(understand_completion, block_unexpected=block_unexpected)
            )

        def echo(answer: Any) -> Any:
            return answer.prompt_text if asked.echo else None

        return await text.serve(
            request,
            asked,
            Form(
                whole=lambda answer, events: text_completion(answer.model, events, echo(answer)),
                writer=lambda answer: CompletionChunks(
                    answer.model, include_usage=asked.include_usage, echo=echo(answer)
                ),
            ),
        )

    @router.post(
        "/responses",
        openapi_extra=json_body(ResponsesRequest, input="Hello!", max_output_tokens=16),
        responses=answers(ResponseObject, refusals=INFERENCE, events=ResponseEvent),
    )
    async def responses(request: Request) -> Response:
        """Answer a conversation in the responses API's items and events."""
        with refusals_counted(metrics, request.url.path):
            asked = await understood(
                request, partial(understand_responses, block_unexpected=block_unexpected)
            )
        return await text.serve(
            request,
            asked.generation,
            Form(
                whole=lambda answer, events: response(
                    answer.model, (item.event for item in events), asked.echoed
                ),
                writer=lambda answer: ResponseEvents(answer.model, asked.echoed),
            ),
        )
