"""What is neither inference nor management: liveness, metrics, the API's description, and what `transformers`
expects.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import yaml
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from hf_transformers_backend.backend import Backend
from hf_transformers_backend.boundary import cut_by_shutdown
from hf_transformers_backend.errors import BadRequest, FlexServError
from hf_transformers_backend.metrics import CONTENT_TYPE
from hf_transformers_backend.residency import LoadTicket
from hf_transformers_backend.routes.bodies import EmptyBody, LoadModelBody, read_body
from hf_transformers_backend.routes.event_stream import EventStreamResponse
from hf_transformers_backend.routes.json_request import understood
from hf_transformers_backend.routes.openapi import (
    MUTATING_LOAD,
    MUTATION,
    answers,
    json_body,
    optional_body,
)
from hf_transformers_backend.schemas.management import Done, Liveness, LoadEvent

PROGRESS_SECONDS = 0.25
STAGES = {"queued": "config", "download": "download", "weights": "weights"}


def build_router(backend: Backend) -> APIRouter:
    """/health, /metrics, /openapi.yaml, /load_model, /reset."""
    router = APIRouter(tags=["meta"])
    residency, lifecycle = backend.residency, backend.lifecycle

    # On the event loop and free of locks: liveness must not depend on anything that can be busy.
    @router.get("/health", summary="Liveness", responses=answers(Liveness, also={500: [Liveness]}))
    async def liveness() -> JSONResponse:
        fault = lifecycle.fault
        if fault is not None:
            return JSONResponse({"status": "failed", "reason": fault}, status_code=500)
        return JSONResponse({"status": "ok"})

    @router.get("/metrics", summary="Metrics for Prometheus", responses=answers(texts=["text/plain"]))
    def metrics() -> Response:
        return Response(backend.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    @router.get("/openapi.yaml", include_in_schema=False)
    def openapi_yaml(request: Request) -> Response:
        text = yaml.safe_dump(request.app.openapi(), sort_keys=False, allow_unicode=True)
        return Response(text, media_type="application/yaml")

    @router.post(
        "/load_model",
        summary="Load a model and stream the progress (server-sent events)",
        openapi_extra=json_body(LoadModelBody),
        responses=answers(events=LoadEvent, refusals=MUTATING_LOAD),
    )
    async def load_model(request: Request) -> Response:
        name = await understood(request, _model_of)
        ticket = await asyncio.to_thread(residency.request_load, name)
        return EventStreamResponse(
            _progress_events(name, ticket), last_words=lambda: _failure(name, cut_by_shutdown())
        )

    @router.post(
        "/reset",
        summary="Unload everything",
        openapi_extra=optional_body(EmptyBody),
        response_model=None,
        responses=answers(Done, refusals=MUTATION),
    )
    async def reset(request: Request) -> dict[str, str]:
        await read_body(request, EmptyBody)
        await asyncio.to_thread(residency.unload, None)
        return {"status": "ok"}

    return router


def _model_of(body: Any) -> str:
    if not isinstance(body, dict):
        raise BadRequest("the request body must be a JSON object")
    name = body.get("model")
    if not isinstance(name, str):
        raise BadRequest("'model' is required: the name of the model to load", param="model")
    return name


async def _progress_events(name: str, ticket: LoadTicket) -> AsyncGenerator[bytes, None]:
    """`loading` events while it moves, then `ready` or `error`, as `transformers chat` reads them."""
    if ticket.job is None:
        yield _event({"status": "ready", "model": name, "cached": True})
        return
    job, shown = ticket.job, None
    outcome = asyncio.wrap_future(job.outcome)
    while not outcome.done():
        view = job.view()
        now = (view.stage, view.done)
        if now != shown:
            shown = now
            event: dict[str, Any] = {"status": "loading", "model": name, "stage": STAGES[view.stage]}
            if view.done:
                event["progress"] = {"current": view.done, "total": view.total}
            yield _event(event)
        await asyncio.wait({outcome}, timeout=PROGRESS_SECONDS)
    error = outcome.result()
    if error is None:
        yield _event({"status": "ready", "model": name, "cached": False})
    else:
        yield _failure(name, error)


def _failure(name: str, error: FlexServError) -> bytes:
    return _event({"status": "error", "model": name, "message": error.message, "code": error.code})


def _event(payload: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()
