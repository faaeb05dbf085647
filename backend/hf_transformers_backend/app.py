"""The composition root: makes every part once and hands it to those who need it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from huggingface_hub.constants import HF_HUB_CACHE
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from hf_transformers_backend import __version__
from hf_transformers_backend.access import AccessMiddleware, AccessPolicy, error_response
from hf_transformers_backend.activity import ActivityMiddleware, ActivityTracker
from hf_transformers_backend.backend import Backend
from hf_transformers_backend.boundary import BodyLimitMiddleware, FaultMiddleware
from hf_transformers_backend.cache_disk import make_folder
from hf_transformers_backend.device_fault import DeviceHealth
from hf_transformers_backend.errors import BadRequest, FlexServError
from hf_transformers_backend.generation.image_fetch import ImageFetcher
from hf_transformers_backend.lifecycle import Lifecycle
from hf_transformers_backend.memory_monitor import MemoryMonitor
from hf_transformers_backend.memory_room import measure_rooms
from hf_transformers_backend.metrics import build_metrics
from hf_transformers_backend.model_loader import ModelLoader
from hf_transformers_backend.request_log import RequestLogMiddleware
from hf_transformers_backend.residency import Residency
from hf_transformers_backend.routes import flexserv, meta, openai, page
from hf_transformers_backend.routes.openapi import DescribedApi
from hf_transformers_backend.settings import Settings
from hf_transformers_backend.upstream.batch_pool import pool_limits
from hf_transformers_backend.upstream.placement import resolve_device

CLOSE_SECONDS = 5.0


def build_backend(settings: Settings) -> Backend:
    """All parts, none of them started."""
    health = DeviceHealth()
    device = resolve_device(settings.device)
    pool = pool_limits(settings)
    residency = Residency(
        settings,
        ModelLoader(
            settings.device,
            settings.cache_limit_bytes,
            0 if pool is None else pool.known_tokens(on_cpu=device == "cpu"),
        ),
        rooms=lambda kind: measure_rooms(settings, device, kind),
        cached_models=_cached_models,
        health=health,
    )
    activity = ActivityTracker()
    lifecycle = Lifecycle(settings, residency, health=health)
    monitor = None
    if settings.oom_monitor:
        monitor = MemoryMonitor(
            residency, settings, watch_vram=device != "cpu", active_requests=lambda: activity.active
        )
    metrics = build_metrics(
        residency,
        activity,
        settings,
        lifecycle.is_ready,
        pressures=None if monitor is None else lambda: monitor.pressures,
    )
    access = AccessPolicy(settings, lifecycle.instance_id)
    images = ImageFetcher(settings.image_hosts, settings.max_request_bytes)
    return Backend(settings, residency, activity, metrics, lifecycle, access, health, images, monitor)


def build_app(settings: Settings) -> FastAPI:
    """The application; its lifespan starts and stops what runs beside the requests. `app.state.backend` has
    the parts.
    """
    backend = build_backend(settings)
    app = DescribedApi(
        title="FlexServ backend",
        version=__version__,
        description="transformers models behind the OpenAI API, and their residency under /v1/flexserv.",
        lifespan=lambda _app: _lifespan(backend),
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.backend = backend
    for router in (
        flexserv.build_router(backend),
        openai.build_router(backend),
        meta.build_router(backend),
        page.build_router(),
    ):
        app.include_router(router)
    app.add_exception_handler(FlexServError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    # The last one added is the outermost.
    app.add_middleware(AccessMiddleware, policy=backend.access)
    app.add_middleware(BodyLimitMiddleware, limit_bytes=settings.max_request_bytes)
    app.add_middleware(
        FaultMiddleware, is_draining=lambda: backend.lifecycle.is_draining, failed_with=backend.health.note
    )
    app.add_middleware(ActivityMiddleware, tracker=backend.activity)
    app.add_middleware(RequestLogMiddleware)
    if settings.enable_cors:
        # No cookies: a gateway's session must not become usable by every page that its user looks at.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=["*"],
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Retry-After", "X-Request-Id"],
        )
    return app


def _cached_models() -> list[tuple[str, int]]:
    from hf_transformers_backend.hub_cache import cached_models

    return cached_models()


@asynccontextmanager
async def _lifespan(backend: Backend) -> AsyncIterator[None]:
    await anyio.to_thread.run_sync(make_folder, Path(HF_HUB_CACHE))
    backend.residency.start()
    backend.metrics.event_loop_lag.start()
    if backend.monitor is not None:
        backend.monitor.start()
    try:
        yield
    finally:
        backend.images.close()
        if backend.monitor is not None:
            await anyio.to_thread.run_sync(backend.monitor.stop)
        await backend.metrics.event_loop_lag.stop()
        await anyio.to_thread.run_sync(backend.residency.close, CLOSE_SECONDS)


async def _answer_error(_request: Request, error: Any) -> JSONResponse:
    return error_response(error)


async def _answer_invalid(_request: Request, error: Any) -> JSONResponse:
    """The first fault of a body or query, by the field's name."""
    fault = error.errors()[0]
    place = ".".join(str(part) for part in fault["loc"][1:] if not isinstance(part, int)) or None
    if fault["type"] == "json_invalid":
        place, message = None, "the body is not valid JSON"
    elif fault["type"] == "extra_forbidden":
        message = f"'{place}' is not a known field"
    else:
        message = f"'{place or 'body'}': {fault['msg']}"
    return error_response(BadRequest(message, param=place))


async def _answer_http(request: Request, error: Any) -> JSONResponse:
    """404 and 405 of the router, in the shape of all other errors."""
    words = {
        404: f"there is no {request.url.path} here",
        405: f"{request.url.path} does not take {request.method}",
    }
    body = BadRequest(
        words.get(error.status_code, str(error.detail)),
        code="not_found" if error.status_code == 404 else None,
    )
    return JSONResponse(body.body(), status_code=error.status_code, headers=error.headers)
