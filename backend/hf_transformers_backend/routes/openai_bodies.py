"""Read the bodies of OpenAI requests: JSON, or a form with one file.

What is in them is understood elsewhere.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request

from hf_transformers_backend.errors import BadRequest

ANSWERED_AS_JSON = ("application/json", "", "application/x-www-form-urlencoded")
"""`curl -d` declares a form, and many a script nothing, when what they send is JSON."""

_LARGE = 256 * 1024
"""Bytes from which parsing is taken off the event loop."""


async def read_json(request: Request) -> Any:
    """The decoded body. Raises BadRequest for another content type and for what is not JSON in UTF-8."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type not in ANSWERED_AS_JSON and not content_type.endswith("+json"):
        raise BadRequest(
            f"Content-Type is {content_type or 'missing'}; send JSON with Content-Type: application/json",
            code="unsupported_content_type",
        )
    data = await _body(request)
    return _parse(data) if len(data) < _LARGE else await asyncio.to_thread(_parse, data)


@dataclass(frozen=True, slots=True)
class UploadForm:
    """Text fields with all their values, and the bytes of the file."""

    fields: dict[str, list[str]]
    file: bytes


async def read_form(request: Request) -> UploadForm:
    """A multipart form with a `file`. Raises BadRequest."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise BadRequest(
            "send a form with Content-Type: multipart/form-data", code="unsupported_content_type"
        )
    fields: dict[str, list[str]] = {}
    files: list[bytes] = []
    try:
        async with request.form(max_files=1, max_fields=50) as form:
            for name, value in form.multi_items():
                if not isinstance(value, UploadFile):
                    fields.setdefault(name, []).append(value)
                elif name == "file":
                    files.append(await value.read())
    except ClientDisconnect as error:
        raise BadRequest("the request body was cut off") from error
    except (MultiPartException, HTTPException) as error:
        detail = getattr(error, "message", None) or getattr(error, "detail", "")
        raise BadRequest(f"the form cannot be read: {detail}") from error
    if not files:
        raise BadRequest("file: is required, as an uploaded file", param="file")
    if not files[0]:
        raise BadRequest("file: is empty", param="file")
    return UploadForm(fields, files[0])


async def _body(request: Request) -> bytes:
    try:
        return await request.body()
    except ClientDisconnect as error:
        raise BadRequest("the request body was cut off") from error


def _parse(data: bytes) -> Any:
    if not data:
        raise BadRequest("the request body is empty; send a JSON object")
    try:
        value = json.loads(data.decode("utf-8"))
        if b"\\ud" in data.lower():  # half of a surrogate pair is valid JSON and no text
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError as error:
        raise BadRequest("the request body is not valid UTF-8 text") from error
    except RecursionError as error:
        raise BadRequest("the request body is nested too deeply") from error
    except ValueError as error:
        raise BadRequest(f"the request body is not valid JSON: {error}") from error
    return value
