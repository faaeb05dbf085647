"""Describe bodies that a route reads by itself, for the OpenAPI document."""

import copy
from typing import Any

from pydantic import BaseModel


def json_body(schema: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` for a JSON body of this schema."""
    return _body(schema, "application/json")


def optional_body(schema: type[BaseModel]) -> dict[str, Any]:
    """The same for a body that may be left out."""
    described = json_body(schema)
    described["requestBody"]["required"] = False
    return described


def form_body(schema: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` for a multipart form of this schema and an uploaded `file`."""
    described = _body(schema, "multipart/form-data")
    form = described["requestBody"]["content"]["multipart/form-data"]["schema"]
    form["properties"]["file"] = {"type": "string", "contentMediaType": "application/octet-stream"}
    form["required"] = [*form.get("required", ()), "file"]
    return described


def _body(schema: type[BaseModel], media_type: str) -> dict[str, Any]:
    document = schema.model_json_schema()
    definitions = document.pop("$defs", {})
    return {
        "requestBody": {
            "required": True,
            "content": {media_type: {"schema": _inlined(document, definitions)}},
        }
    }


def _inlined(value: Any, definitions: dict[str, Any]) -> Any:
    """The schema with every reference replaced by what it means.

    OpenAPI has another place for definitions.
    """
    if isinstance(value, list):
        return [_inlined(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        if name == "JsonValue":
            return {}
        rest = {key: item for key, item in value.items() if key != "$ref"}
        return {**_inlined(copy.deepcopy(definitions[name]), definitions), **rest}
    return {
        key: _inlined(item, definitions)
        for key, item in value.items()
        if key != "discriminator"  # its mapping points at definitions
    }
