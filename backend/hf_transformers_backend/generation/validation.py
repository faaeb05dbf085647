"""From a decoded body to a schema's model.

Pydantic's complaints become one BadRequest that names field and remedy.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.schemas.base import declared_fields

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
_MOST_ALTERNATIVES = 4
_MOST_NAMES = 20
_MOST_STEPS = 16
_REFUSED = ("literal_error", "none_required")


def validated(schema: type[M], body: Any, *, block_unexpected: bool) -> M:
    """Raises BadRequest. Unknown top-level keys are dropped unless `block_unexpected`."""
    if not isinstance(body, dict):
        raise BadRequest("the request body must be a JSON object")
    unexpected = sorted(set(body) - declared_fields(schema))
    if unexpected and block_unexpected:
        more = ", ..." if len(unexpected) > _MOST_NAMES else ""
        raise BadRequest(
            f"unexpected fields: {', '.join(unexpected[:_MOST_NAMES])}{more}; remove them",
            param=unexpected[0],
        )
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        raise _bad_request(error, body, "") from error


def validated_part(adapter: TypeAdapter[T], value: Any, where: str) -> T:
    """The same for a part of a body that has its own schema; `where` is its place in the body."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _bad_request(error, value, where) from error


def json_object(text: str, where: str) -> dict[str, Any]:
    """A field that carries a JSON object as text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{where}: not valid JSON", param=where) from error
    if not isinstance(value, dict):
        raise BadRequest(f"{where}: must be the text of a JSON object", param=where)
    return value


def _bad_request(error: ValidationError, body: Any, where: str) -> BadRequest:
    problems: dict[str, list[str]] = {}
    crowded = None
    for details in error.errors(include_url=False, include_input=False):
        path = _path(details, body, where)
        text = _explained(details)
        if details["type"] == "too_long":
            crowded, problems[path] = path, [text]
        if text not in problems.setdefault(path, []):
            problems[path].append(text)
    # An alternative that fails deep inside says more than one that fails at once, and too many of the right
    # kind say more than one of a wrong kind.
    path = crowded or max(problems, key=lambda p: p.count(".") + p.count("["))
    return BadRequest(f"{path}: {' or '.join(problems[path][:_MOST_ALTERNATIVES])}", param=path)


def _path(details: ErrorDetails, body: Any, where: str) -> str:
    """The place in the body; pydantic's own names for alternatives are left out."""
    path, value = where, body
    missing = details["type"] == "missing"
    for step in details["loc"][:_MOST_STEPS]:
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(step, str) and isinstance(value, Mapping) and step in value and step != "[key]":
            path, value = f"{path}.{step}" if path else step, value[step]
    last = details["loc"][-1] if details["loc"] else ""
    if missing and isinstance(last, str):
        path = f"{path}.{last}" if path else last
    return path or "body"


def _explained(details: ErrorDetails) -> str:
    message = details["msg"]
    if details["type"] == "missing":
        return "is required"
    if details["type"] == "literal_error":
        return f"must be {_in_json(details['ctx']['expected'])}; nothing else is supported"
    if details["type"] == "union_tag_invalid":
        return f"its {details['ctx']['discriminator']} must be one of {details['ctx']['expected_tags']}"
    if details["type"] == "union_tag_not_found":
        return f"needs a {details['ctx']['discriminator']}"
    if details["type"] == "too_long":
        return f"at most {details['ctx']['max_length']} of them, not {details['ctx']['actual_length']}"
    if details["type"] == "string_too_short":
        return "must not be empty" if details["ctx"]["min_length"] == 1 else "is too short"
    if details["type"] == "extra_forbidden":
        return "is not a known field; remove it"
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    if details["type"] == "recursion_depth_exceeded":
        return "is nested too deeply"
    if details["type"] == "none_required":
        return "is not supported; leave it out"
    return message.replace("Input should be", "must be", 1)


def _in_json(literal: str) -> str:
    return {"False": "false", "True": "true", "None": "null"}.get(literal, literal)
