"""GET /v1/flexserv/health: whether this process should get traffic."""

from typing import Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from hf_transformers_backend.backend import Backend
from hf_transformers_backend.errors import Unavailable
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.inventory import timestamp
from hf_transformers_backend.residency import Residency, ResidencySnapshot
from hf_transformers_backend.routes.openapi import answers
from hf_transformers_backend.schemas.answers import ErrorAnswer
from hf_transformers_backend.schemas.management import Readiness

NOT_LOADED_RETRY_SECONDS = 5.0


def add_readiness(router: APIRouter, backend: Backend) -> None:
    """The process, and with `?model=` one model."""
    residency, lifecycle = backend.residency, backend.lifecycle

    @router.get(
        "/health",
        summary="Readiness",
        responses=answers(Readiness, refusals=(400,), also={503: [Readiness, ErrorAnswer]}),
    )
    def readiness(
        model: str | None = Query(None, description="Also ask whether this model is in memory."),
    ) -> JSONResponse:
        status = lifecycle.status()
        body = {"status": status, **_health_facts(backend)}
        if status == "ok" and model is not None and not _is_resident(residency, model):
            raise Unavailable(
                f"'{model}' is not loaded here",
                code="not_loaded",
                param="model",
                retry_after=NOT_LOADED_RETRY_SECONDS,
            )
        return JSONResponse(body, status_code=200 if status == "ok" else 503)


def _health_facts(backend: Backend) -> dict[str, Any]:
    now = backend.residency.snapshot()
    model = _current_model(backend.residency, "serve", now)
    encoder = _current_model(backend.residency, "embedding", now)
    return {
        "model": None if model is None else str(model),
        "model_status": _status_of(model, now),
        "embedding_model": {
            "model_id": None if encoder is None else str(encoder),
            "status": _status_of(encoder, now),
        },
        "device": backend.settings.device,
        "dtype": backend.settings.dtype,
        "active_requests": backend.activity.active,
        "instance_id": backend.lifecycle.instance_id,
        "pod_uid": backend.lifecycle.pod_uid,
        "started_at": timestamp(backend.lifecycle.started_at),
        "fault": backend.lifecycle.fault,
    }


def _current_model(residency: Residency, kind: Kind, now: ResidencySnapshot) -> ModelIdentity | None:
    """The default model, else the one in memory that was used last."""
    default = residency.default(kind)
    if default is not None:
        return default
    resident = [model for model in now.models if model.identity.kind == kind]
    return max(resident, key=lambda model: model.last_used_at).identity if resident else None


def _status_of(model: ModelIdentity | None, now: ResidencySnapshot) -> str:
    if any(resident.identity == model for resident in now.models):
        return "loaded"
    if any(job.identity == model for job in now.loading):
        return "loading"
    return "failed" if any(failure.identity == model for failure in now.failed) else "not_loaded"


def _is_resident(residency: Residency, name: str) -> bool:
    resident = {model.identity for model in residency.snapshot().models}
    kinds: tuple[Kind, ...] = ("serve", "embedding")
    return any(candidate in resident for candidate in (residency.meaning(name, kind) for kind in kinds))
