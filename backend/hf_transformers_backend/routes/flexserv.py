"""/v1/flexserv/*: readiness, facts, and the management of what is in memory."""

import asyncio
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import SecretStr

from hf_transformers_backend import __version__
from hf_transformers_backend.backend import Backend
from hf_transformers_backend.inventory import identity as identity_json
from hf_transformers_backend.inventory import inventory, timestamp
from hf_transformers_backend.residency import LoadTicket, Unloaded
from hf_transformers_backend.resource_metrics import get_gpu_info_in_time, get_system_resources
from hf_transformers_backend.routes.bodies import (
    DeclaredBody,
    EmptyBody,
    LoadBody,
    UnloadBody,
    read_body,
)
from hf_transformers_backend.routes.openapi import (
    MUTATING_LOAD,
    MUTATION,
    READ,
    answers,
    json_body,
    optional_body,
)
from hf_transformers_backend.routes.readiness import add_readiness
from hf_transformers_backend.schemas.inventory import Inventory
from hf_transformers_backend.schemas.management import (
    DeclaredAnswer,
    Done,
    Info,
    LoadAnswer,
    Resources,
    UnloadAnswer,
)

LIBRARIES = ("transformers", "torch", "sentence-transformers", "huggingface_hub", "fastapi", "uvicorn")


def build_router(backend: Backend) -> APIRouter:
    """The routes under /v1/flexserv."""
    router = APIRouter(prefix="/v1/flexserv", tags=["flexserv"])
    residency, lifecycle, settings = backend.residency, backend.lifecycle, backend.settings

    add_readiness(router, backend)

    @router.get(
        "/info",
        summary="Versions, settings in force, devices",
        response_model=None,
        responses=answers(Info, refusals=READ),
    )
    def info(request: Request) -> dict[str, Any]:
        return {
            "name": "flexserv-backend",
            "version": __version__,
            "python": platform.python_version(),
            "libraries": {name: _installed(name) for name in LIBRARIES},
            "instance_id": lifecycle.instance_id,
            "pod_uid": lifecycle.pod_uid,
            "started_at": timestamp(lifecycle.started_at),
            "settings": {name: _shown(value) for name, value in settings},
            "access": backend.access.rights(request.headers),
            "device": settings.device,
            "devices": [gpu.to_dict() for gpu in get_gpu_info_in_time()],
        }

    @router.get(
        "/resources",
        summary="Memory, CPU and GPUs now",
        response_model=None,
        responses=answers(Resources, refusals=READ),
    )
    def resources() -> dict[str, Any]:
        return get_system_resources().to_dict()

    @router.get(
        "/models/loaded",
        summary="Inventory",
        response_model=None,
        responses=answers(Inventory, refusals=READ),
    )
    def loaded() -> dict[str, Any]:
        return inventory(residency, lifecycle)

    @router.post(
        "/models/load",
        summary="Load a model, or change its settings",
        openapi_extra=json_body(LoadBody, model_id="Qwen/Qwen3-0.6B", wait=60),
        responses=answers(LoadAnswer, refusals=MUTATING_LOAD, also={202: [LoadAnswer]}),
    )
    async def load(request: Request) -> JSONResponse:
        body = await read_body(request, LoadBody)
        served = None if body.revision is not None else residency.served_as(body.model_id, body.kind)
        ticket = await anyio.to_thread.run_sync(residency.load, served or body.identity(), body.changes())
        patience = settings.load_wait if body.wait is True else float(body.wait)
        return await _answer_load(ticket, patience)

    @router.post(
        "/models/unload",
        summary="Unload one model, or all",
        openapi_extra=json_body(UnloadBody, model_id="Qwen/Qwen3-0.6B"),
        response_model=None,
        responses=answers(UnloadAnswer, refusals=MUTATION),
    )
    async def unload(request: Request) -> dict[str, Any]:
        body = await read_body(request, UnloadBody)
        name = None if body.model_id == "*" else body.model_id
        active = backend.activity.active
        unloaded = await anyio.to_thread.run_sync(
            lambda: residency.unload(
                name,
                kind=body.kind,
                revisions=body.revisions(),
                reason="memory" if body.oom_triggered else "manual",
            )
        )
        return _unload_reply(body, name, unloaded, active)

    @router.post(
        "/declared",
        summary="The operator's whole list of models",
        openapi_extra=json_body(DeclaredBody, models=[{"model_id": "Qwen/Qwen3-0.6B"}], hash="1"),
        response_model=None,
        responses=answers(DeclaredAnswer, refusals=MUTATION),
    )
    async def declared(request: Request) -> dict[str, Any]:
        body = await read_body(request, DeclaredBody)
        residency.declare(body.to_declared(), body.hash)
        return {"status": "ok", "declared": len(body.models), "hash": body.hash}

    @router.post(
        "/synced",
        summary="The operator's models are in",
        openapi_extra=optional_body(EmptyBody),
        response_model=None,
        responses=answers(Done, refusals=MUTATION),
    )
    async def synced(request: Request) -> dict[str, Any]:
        await read_body(request, EmptyBody)
        residency.mark_synced()
        return {"status": "ok"}

    return router


async def _answer_load(ticket: LoadTicket, patience_seconds: float) -> JSONResponse:
    who = identity_json(ticket.identity)
    if ticket.job is None:
        return JSONResponse({**who, "status": "already_loaded"})
    job = ticket.job
    if patience_seconds > 0:
        outcome = asyncio.wrap_future(job.outcome)
        done, _ = await asyncio.wait({outcome}, timeout=patience_seconds)
        if done:
            error = outcome.result()
            if error is not None:
                raise error.copy()
            return JSONResponse({**who, "status": "loaded", "load_id": job.load_id})
    view = job.view()
    progress = {"stage": view.stage, "done": view.done, "total": view.total}
    return JSONResponse({**who, "status": "loading", "load_id": job.load_id, **progress}, status_code=202)


def _unload_reply(
    body: UnloadBody, name: str | None, unloaded: list[Unloaded], active: int
) -> dict[str, Any]:
    entries: list[dict[str, Any]] = [
        {
            **identity_json(one.identity),
            "was_loaded": one.was_loaded,
            "was_loading": one.was_loading,
            "had_active_requests": one.had_active_requests,
        }
        for one in unloaded
    ]
    if not entries and name is not None:
        asked = {"model_id": name, "kind": body.kind, "revision": body.revision}
        entries = [{**asked, "was_loaded": False, "was_loading": False, "had_active_requests": False}]
    warnings = [
        f"{one.identity} is in use: running requests complete, the memory is released after the last one"
        for one in unloaded
        if one.had_active_requests
    ]
    return {
        "unloaded": entries,
        "warnings": warnings,
        "active_requests_at_eviction": active,
        "oom_triggered": body.oom_triggered,
    }


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _shown(value: object) -> object:
    if isinstance(value, SecretStr):
        return "********"
    return value if isinstance(value, (str, int, float, bool, dict)) or value is None else str(value)
