"""Say in the OpenAPI document what a route reads by itself, what it answers, and how it refuses.

Each description carries the definitions that it refers to; `finished_document` moves them to where OpenAPI
keeps them, once each.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hf_transformers_backend.schemas.answers import ErrorAnswer

Json = dict[str, Any]
_COMPONENTS = "#/components/schemas/"

END_MARKER = "[DONE]"
JSON, EVENTS, FORM = "application/json", "text/event-stream", "multipart/form-data"

READ = (401, 409)
"""Of every route under /v1: the token, the instance that is meant."""
BODY = (400, 408, 413)
"""Of every route that takes a body."""
LOAD = (*READ, *BODY, 403, 404, 422, 500, 502, 503, 507)
"""Of every route that may load a model."""
INFERENCE = (*LOAD, 429)
MUTATION = (*READ, *BODY, 403, 415, 500)
MUTATING_LOAD = (*LOAD, 415)

_REASONS = {
    200: "Answered.",
    202: "Under way.",
    400: "The request cannot be served as it is written; `param` names the field.",
    401: "A token is missing or wrong.",
    403: "Not allowed: not_declared, model_gated, foreign_origin.",
    404: "No such model, here or on the hub (model_not_found).",
    408: "The rest of the body did not come.",
    409: "X-FlexServ-Instance names another process (wrong_instance).",
    413: "The body is larger than the server's --max-request-bytes.",
    415: "The body is not declared as JSON.",
    422: "The model exists and cannot be served here (unsupported_model).",
    429: "Too many requests wait for this model (queue_full).",
    500: "A fault of the server: load_failed, internal_error.",
    502: "The model hub cannot be reached, or answers with an error (hub_unavailable).",
    503: "Not now: model_loading, model_unloaded, model_quarantined, not_synced, memory_pressure, draining.",
    507: "No room: insufficient_memory, insufficient_storage.",
}
_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "--flexserv-token; for loads and unloads --admin-token. Not needed where there is none.",
}
_INSTANCE = {
    "name": "X-FlexServ-Instance",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The instance_id of the process that is meant; another one answers 409 and does nothing.",
}
_HEADERS = {
    401: {"WWW-Authenticate": {"description": "Bearer", "schema": {"type": "string"}}},
    **{
        status: {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
        for status in (429, 502, 503)
    },
}


class DescribedApi(FastAPI):
    """An application whose document is finished."""

    def openapi(self) -> Json:
        """The OpenAPI document, made once."""
        if self.openapi_schema is None:
            self.openapi_schema = finished_document(super().openapi())
        return self.openapi_schema


def json_body(schema: type[BaseModel], **example: Any) -> Json:
    """`openapi_extra` for a JSON body of this schema, with one that works."""
    described = _body(JSON, schema_of(schema, "validation"))
    if example:
        described["requestBody"]["content"][JSON]["examples"] = {"short": {"value": example}}
    return described


def optional_body(schema: type[BaseModel]) -> Json:
    """The same for a body that may be left out."""
    described = json_body(schema)
    described["requestBody"]["required"] = False
    return described


def form_body(schema: type[BaseModel]) -> Json:
    """`openapi_extra` for a multipart form of this schema and an uploaded `file`."""
    fields = schema_of(schema, "validation")
    form = fields["$defs"][schema.__name__]
    form["properties"]["file"] = {
        "type": "string",
        "format": "binary",
        "contentMediaType": "application/octet-stream",
        "description": "The sound: WAV, FLAC, OGG or MP3.",
    }
    form["required"] = [*form.get("required", ()), "file"]
    return _body(FORM, fields)


def answers(
    *schemas: type[BaseModel],
    refusals: Iterable[int] = (),
    also: Mapping[int, Sequence[type[BaseModel]]] = MappingProxyType({}),
    events: type[BaseModel] | None = None,
    end_marker: bool = False,
    texts: Iterable[str] = (),
) -> dict[int | str, Json]:
    """`responses` of a route: JSON of one of the schemas, or server-sent events, or texts of these types.

    `refusals` are the statuses of its errors; `also` has statuses with answers of another kind.
    A stream with an `end_marker` ends with an event that is no JSON.
    """
    content: Json = {}
    if schemas:
        content[JSON] = {"schema": _one_of(schemas)}
    if events is not None:
        content[EVENTS] = {"itemSchema": _event_of(events, end_marker)}
    content |= {media_type: {"schema": {"type": "string"}} for media_type in texts}
    described: dict[int | str, Json] = {200: {"description": _REASONS[200], "content": content}}
    for status, others in also.items():
        content = {JSON: {"schema": _one_of(others)}}
        described[status] = {"description": _REASONS[status], "content": content}
    error = {JSON: {"schema": schema_of(ErrorAnswer, "serialization")}}
    for status in sorted(set(refusals)):
        refusal = {"description": _REASONS[status], "content": error}
        described[status] = refusal | ({"headers": _HEADERS[status]} if status in _HEADERS else {})
    return described


def schema_of(schema: type[BaseModel], mode: Any) -> Json:
    """A reference to a schema's definition, with all definitions that it needs in `$defs`."""
    _, document = models_json_schema([(schema, mode)], ref_template=_COMPONENTS + "{model}")
    return {"$ref": _COMPONENTS + schema.__name__, "$defs": document["$defs"]}


def finished_document(document: Json) -> Json:
    """The document with all definitions in its components. FastAPI's own 422 goes: ours are 400."""
    definitions: Json = {}
    document["paths"] = _lifted(document["paths"], definitions)
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422")):
            del operation["responses"]["422"]
        for answer in operation["responses"].values():
            # FastAPI says JSON of every route that has not said what it answers itself.
            nothing = [kind for kind, content in answer["content"].items() if content.get("schema") == {}]
            for kind in nothing:
                del answer["content"][kind]
        if "401" in operation["responses"]:
            operation["security"] = [{}, {"token": []}]
        if "415" in operation["responses"]:
            operation.setdefault("parameters", []).append(_INSTANCE)
    document.setdefault("components", {})["securitySchemes"] = {"token": _TOKEN}
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    document["components"]["schemas"] = dict(sorted({**schemas, **definitions}.items()))
    return document


def _body(media_type: str, schema: Json) -> Json:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema}}}}


def _one_of(schemas: Sequence[type[BaseModel]]) -> Json:
    described = [schema_of(schema, "serialization") for schema in schemas]
    return described[0] if len(described) == 1 else {"anyOf": described}


def _event_of(schema: type[BaseModel], end_marker: bool) -> Json:
    """One server-sent event, in the words of OpenAPI 3.2, whose data are JSON."""
    data: Json = {
        "type": "string",
        "contentMediaType": JSON,
        "contentSchema": schema_of(schema, "serialization"),
    }
    if end_marker:
        data = {"anyOf": [data, {"const": END_MARKER}]}
    return {
        "type": "object",
        "properties": {"data": data, "event": {"type": "string"}},
        "required": ["data"],
    }


def _lifted(value: Any, definitions: Json) -> Any:
    """The value without `$defs`, which are added to `definitions`; a name must mean one thing."""
    if isinstance(value, list):
        return [_lifted(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    for name, definition in value.get("$defs", {}).items():
        known = definitions.setdefault(name, definition)
        if known != definition:
            raise ValueError(f"two schemas are called {name}")
    return {key: _lifted(item, definitions) for key, item in value.items() if key != "$defs"}
