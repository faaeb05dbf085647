"""Hold every answer of a test's server to the OpenAPI document of that server."""

import re
from typing import Any
from urllib.parse import urlsplit

import httpx
import jsonschema

JSON = "application/json"
_KNOWN: dict[str, Any] = {}


def check_documented(response: httpx.Response) -> None:
    """Raises AssertionError where status, type or JSON body are not what the document says.

    A hook for httpx clients. Routes that are not in the document are left alone.
    """
    request = response.request
    document = _document(f"{request.url.scheme}://{request.url.netloc.decode()}")
    operation = _operation(document, request.method, urlsplit(str(request.url)).path)
    if operation is None:
        return
    said = f"{request.method} {request.url.path} answered {response.status_code}"
    described = operation["responses"].get(str(response.status_code))
    assert described is not None, f"{said}, which /openapi.json does not mention: {response.read()!r}"
    media_type = response.headers.get("content-type", "").partition(";")[0]
    assert media_type in described["content"], f"{said} with {media_type}, not in /openapi.json"
    if media_type != JSON:
        return
    response.read()
    schema = {**described["content"][JSON]["schema"], "components": document["components"]}
    fault = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(response.json())
    )
    assert fault is None, f"{said}, not as in /openapi.json: {fault.json_path}: {fault.message}"


def _document(address: str) -> dict[str, Any]:
    """Asked for once: all servers of a session are the same program, and settings do not change it."""
    if not _KNOWN:
        _KNOWN.update(httpx.get(f"{address}/openapi.json", timeout=30).raise_for_status().json())
    return _KNOWN


def _operation(document: dict[str, Any], method: str, path: str) -> dict[str, Any] | None:
    for template, operations in sorted(document["paths"].items(), key=lambda item: "{" in item[0]):
        pattern = re.sub(r"\\\{\w+\\\}", ".+", re.escape(template))
        if re.fullmatch(pattern, path):
            found: dict[str, Any] | None = operations.get(method.lower())
            return found
    return None
