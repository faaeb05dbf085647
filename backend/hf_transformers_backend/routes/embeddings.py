"""POST /v1/embeddings."""

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hf_transformers_backend.generation.embedding import (
    EmbeddingsAsked,
    embeddings_answer,
    understand_embeddings,
)
from hf_transformers_backend.generation.failure import explained_failure
from hf_transformers_backend.generation.turns import Turns
from hf_transformers_backend.routes.accounting import answer_counted, refusals_counted
from hf_transformers_backend.routes.json_request import understood
from hf_transformers_backend.routes.openapi import INFERENCE, answers, json_body
from hf_transformers_backend.schemas.answers import EmbeddingsAnswer
from hf_transformers_backend.schemas.media import EmbeddingsRequest

if TYPE_CHECKING:
    from hf_transformers_backend.backend import Backend


def add_embeddings(router: APIRouter, backend: "Backend") -> None:
    """Texts or token ids to unit vectors."""
    metrics = backend.metrics.requests
    encoders = Encoders(backend)
    understand = partial(understand_embeddings, block_unexpected=backend.settings.block_on_unexpected_fields)

    @router.post(
        "/embeddings",
        openapi_extra=json_body(EmbeddingsRequest, input=["a cat", "a dog"]),
        responses=answers(EmbeddingsAnswer, refusals=INFERENCE),
    )
    async def embeddings(request: Request) -> Response:
        """Encode one or several texts."""
        with refusals_counted(metrics, request.url.path):
            asked = await understood(request, understand)
        use = EncoderUse()
        return await answer_counted(request, metrics, use, encoders.answer(asked, use))


class EncoderUse:
    """What metrics want to know of a request for an encoder."""

    def __init__(self) -> None:
        self._arrived = time.monotonic()
        self.label: str | None = None
        self.cold = False

    @property
    def seconds(self) -> float:
        """Since the request arrived."""
        return time.monotonic() - self._arrived


class Encoders:
    """Encodes on the encoders' own threads, each with its queue."""

    def __init__(self, backend: "Backend") -> None:
        self._residency = backend.residency
        self._metrics = backend.metrics.requests
        self._max_queue = backend.settings.max_queue
        self._failed_with = backend.health.note
        self._turns: dict[str, Turns] = {}

    async def answer(self, asked: EmbeddingsAsked, use: EncoderUse) -> Response:
        """The answer. The lease and the place in the queue last until the thread is done."""
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
        try:
            batch = await asyncio.wrap_future(job)
        except Exception as error:
            self._failed_with(error)
            raise explained_failure(error) from None
        self._metrics.count_tokens(use.label, prompt=batch.prompt_tokens)
        return JSONResponse(
            embeddings_answer(lease.requested, batch.vectors, batch.prompt_tokens, as_base64=asked.base64)
        )

    def _of(self, encoder: Any) -> Turns:
        turns = self._turns.get(encoder.key)
        if turns is None:
            turns = self._turns[encoder.key] = Turns(encoder.executor, self._max_queue, self._metrics)
            encoder.resources.callback(self._turns.pop, encoder.key, None)
        return turns
