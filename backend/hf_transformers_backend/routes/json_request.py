"""Read a JSON body, the same for every route; a large one off the event loop."""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from hf_transformers_backend.errors import BadRequest

ANSWERED_AS_JSON = ("application/json", "", "application/x-www-form-urlencoded")
"""`curl -d` declares a form, and many a script nothing, when what they send is JSON."""

T = TypeVar("T")
_LARGE = 64 * 1024
"""Bytes from which a body is understood off the event loop."""


async def understood(request: Request, understand: Callable[[Any], T], empty: Any = None) -> T:
    """What `understand` makes of the decoded body, or of `empty` if none was sent and that is allowed.

    Raises BadRequest for another content type and for what is not JSON in UTF-8; and what `understand`
    raises.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in ANSWERED_AS_JSON and not content_type.endswith("+json"):
        raise BadRequest(
            f"Content-Type is {content_type or 'missing'}; send JSON with Content-Type: application/json",
            code="unsupported_content_type",
        )
    data = await _body(request)
    if not data and empty is not None:
        return understand(empty)
    if len(data) < _LARGE:
        return understand(_parse(data))
    return await asyncio.to_thread(lambda: understand(_parse(data)))


async def _body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise BadRequest("the request body was cut off") from error


def _parse(data: bytes) -> Any:
    if not data:
        raise BadRequest("the request body is empty; send a JSON object")
    try:
        return _decoded(data)
    except UnicodeError as error:
        raise BadRequest("the request body is not valid UTF-8 text") from error
    except RecursionError as error:
        raise BadRequest("the request body is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise BadRequest(f"the request body is not valid JSON: {error}") from error
    except ValueError as error:
        raise BadRequest("a number in the request body has too many digits") from error


def _decoded(data: bytes) -> Any:
    text = data.decode("utf-8")
    finite = True
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except _NotFinite:
        finite, value = False, json.loads(text)
    if b"\\ud" in data.lower():  # half of a surrogate pair is valid JSON and no text
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    if not finite:
        place = _place_of_not_finite(value, "") or None
        message = f"{place or 'the request body'}: must be a finite number; NaN and Infinity are no JSON"
        raise BadRequest(message, param=place)
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFinite
    return value


def _place_of_not_finite(value: Any, place: str) -> str | None:
    """The path to the first number that is none; None if there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else place
    children: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        children = [(f"{place}.{key}" if place else key, child) for key, child in value.items()]
    elif isinstance(value, list):
        children = [(f"{place}[{index}]", child) for index, child in enumerate(value)]
    found = (_place_of_not_finite(child, path) for path, child in children)
    return next((path for path in found if path is not None), None)


class _NotFinite(Exception):
    pass
