"""POST /v1/embeddings."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hf_transformers_backend.generation.embedding import (
    EmbeddingsAsked,
    embeddings_answer,
    understand_embeddings,
)
from hf_transformers_backend.generation.turns import Turns
from hf_transformers_backend.routes.disconnect import ClientGone, until_disconnect
from hf_transformers_backend.routes.json_request import read_json
from hf_transformers_backend.routes.openapi import json_body
from hf_transformers_backend.routes.refusals import refusals_counted
from hf_transformers_backend.routes.text import CLIENT_CLOSED_REQUEST, status_of
from hf_transformers_backend.schemas.media import EmbeddingsRequest

if TYPE_CHECKING:
    from hf_transformers_backend.backend import Backend


def add_embeddings(router: APIRouter, backend: "Backend") -> None:
    """Texts or token ids to unit vectors."""
    metrics = backend.metrics.requests
    encoders = Encoders(backend)

    @router.post("/embeddings", openapi_extra=json_body(EmbeddingsRequest))
    async def embeddings(request: Request) -> Response:
        """Encode one or several texts."""
        with refusals_counted(metrics, request.url.path):
            asked = understand_embeddings(
                await read_json(request), block_unexpected=backend.settings.block_on_unexpected_fields
            )
        arrived = time.monotonic()
        use = Use()
        code = 500
        try:
            body = await until_disconnect(request.receive, encoders.answer(asked, use))
            code = 200
            return JSONResponse(body)
        except ClientGone:
            code = CLIENT_CLOSED_REQUEST
            return Response(status_code=code)
        except Exception as error:
            code = status_of(error)
            raise
        finally:
            metrics.observe_request(request.url.path, code, use.label, use.cold, time.monotonic() - arrived)


class Use:
    """What metrics want to know of a request's model."""

    label: str | None = None
    cold = False


class Encoders:
    """Encodes on the encoders' own threads, each with its queue."""

    def __init__(self, backend: "Backend") -> None:
        self._residency = backend.residency
        self._metrics = backend.metrics.requests
        self._max_queue = backend.settings.max_queue
        self._turns: dict[str, Turns] = {}

    async def answer(self, asked: EmbeddingsAsked, use: Use) -> dict[str, Any]:
        """The body of the answer. The lease and the place in the queue last until the thread is done."""
        with self._metrics.waiting:
            lease = await self._residency.acquire(asked.model, "embedding")
        use.label, use.cold = lease.label, lease.cold
        try:
            encoder = lease.model
            turns = self._of(encoder)
            ticket = turns.admit()
        except BaseException:
            lease.release()
            raise
        job = turns.submit(ticket, lambda: encoder.encode(asked.texts, asked.dimensions))
        job.add_done_callback(lambda _: ticket.release())
        job.add_done_callback(lambda _: lease.release())
        batch = await asyncio.wrap_future(job)
        self._metrics.count_tokens(use.label, prompt=batch.prompt_tokens)
        return embeddings_answer(lease.requested, batch.vectors, batch.prompt_tokens, as_base64=asked.base64)

    def _of(self, encoder: Any) -> Turns:
        turns = self._turns.get(encoder.key)
        if turns is None:
            turns = self._turns[encoder.key] = Turns(encoder.executor, self._max_queue, self._metrics)
            encoder.resources.callback(self._turns.pop, encoder.key, None)
        return turns
