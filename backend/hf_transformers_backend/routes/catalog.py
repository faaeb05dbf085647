"""GET /v1/models: what a client may name."""

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from hf_transformers_backend.errors import NotFound
from hf_transformers_backend.routes.openapi import READ, answers
from hf_transformers_backend.schemas.answers import ModelAnswer, ModelList

if TYPE_CHECKING:
    from hf_transformers_backend.backend import Backend


def add_catalog(router: APIRouter, backend: "Backend") -> None:
    """List and retrieve. Plain functions: the catalog reads the hub's cache on disk."""

    @router.get("/models", response_model=None, responses=answers(ModelList, refusals=READ))
    def list_models() -> dict[str, Any]:
        """Resident, default, declared and cached models, each with its status."""
        return {"object": "list", "data": [_model(entry) for entry in backend.residency.catalog()]}

    @router.get(
        "/models/{model:path}", response_model=None, responses=answers(ModelAnswer, refusals=(*READ, 404))
    )
    def retrieve_model(model: str) -> dict[str, Any]:
        """One of them, by the name under which it is listed."""
        for entry in backend.residency.catalog():
            if entry.name == model:
                return _model(entry)
        raise NotFound(
            f"the model '{model}' is not known here; GET /v1/models lists those that are", param="model"
        )


def _model(entry: Any) -> dict[str, Any]:
    return {
        "id": entry.name,
        "object": "model",
        "created": entry.created,
        "owned_by": entry.owned_by,
        "status": entry.status,
    }
