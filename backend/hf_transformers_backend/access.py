"""Who may call what: tokens, the instance that is meant, and what guards a mutation against a browser or a
typo.

A pure-ASGI middleware in front of the routes, so that nothing of a refused body is parsed.
"""

import hmac
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from fastapi.responses import JSONResponse
from pydantic import SecretStr
from starlette.datastructures import Headers

from hf_transformers_backend.activity import App, Receive, Scope, Send
from hf_transformers_backend.errors import (
    Conflict,
    FlexServError,
    Forbidden,
    Unauthorized,
    UnsupportedMediaType,
)
from hf_transformers_backend.settings import Settings

logger = logging.getLogger(__name__)

ADMIN_PATHS = frozenset(
    {
        "/v1/flexserv/models/load",
        "/v1/flexserv/models/unload",
        "/v1/flexserv/declared",
        "/v1/flexserv/synced",
        "/reset",
    }
)
BODY_OPTIONAL = frozenset({"/v1/flexserv/synced", "/reset"})
ALWAYS_OPEN = frozenset({"/v1/flexserv/health"})
GUARDED_OUTSIDE_V1 = frozenset({"/load_model", "/reset"})

TOKEN_FILE_SECONDS = 1.0
"""How long what a token's file said holds: requests are many, and each would wait for the disk."""

Rights = Literal["none", "user", "admin"]


class Token:
    """A secret from the settings or from a file, which is read again every TOKEN_FILE_SECONDS at most."""

    def __init__(
        self, value: SecretStr | None, file: Path | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._value = None if value is None else value.get_secret_value()
        self._file = file
        self._monotonic = monotonic
        self._read_at = -math.inf

    @property
    def is_set(self) -> bool:
        return self._value is not None or self._file is not None

    def matches(self, given: str) -> bool:
        """Compare in constant time. An unreadable or empty file matches nothing."""
        if self._file is not None and self._monotonic() - self._read_at >= TOKEN_FILE_SECONDS:
            self._value = _read(self._file)
            self._read_at = self._monotonic()
        expected = self._value or ""
        return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        logger.error("a token file cannot be read: nobody who needs that token is let in")
        return None


class AccessPolicy:
    """Says which error, if any, a request deserves before its body is looked at."""

    def __init__(
        self, settings: Settings, instance_id: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._user = Token(settings.flexserv_token, settings.flexserv_token_file, monotonic)
        self._admin = Token(settings.admin_token, settings.admin_token_file, monotonic)
        self._instance_id = instance_id

    def check(self, method: str, path: str, headers: Headers) -> None:
        """Raise Unauthorized, Forbidden, UnsupportedMediaType or Conflict."""
        self._check_token(method, path, headers)
        instance = headers.get("x-flexserv-instance")
        if instance is not None and instance != self._instance_id:
            raise Conflict("X-FlexServ-Instance names another instance; read the inventory again")
        if method == "POST" and (path in ADMIN_PATHS or path in GUARDED_OUTSIDE_V1):
            _check_mutation(path, headers)

    def rights(self, headers: Headers) -> Rights:
        """What the token in the headers allows. Without an admin token whoever may read may also change."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if self._admin.is_set and given and self._admin.matches(given):
            return "admin"
        if self._user.is_set and not (given and self._user.matches(given)):
            return "none"
        return "user" if self._admin.is_set else "admin"

    def _check_token(self, method: str, path: str, headers: Headers) -> None:
        if path in ALWAYS_OPEN or not (path.startswith("/v1/") or path in GUARDED_OUTSIDE_V1):
            return
        needs_admin = method == "POST" and path in ADMIN_PATHS and self._admin.is_set
        rights = self.rights(headers)
        if rights == "none" or (needs_admin and rights != "admin"):
            which = "the admin token" if needs_admin else "a token"
            raise Unauthorized(f"{which} is needed: send 'Authorization: Bearer <token>'")


def _check_mutation(path: str, headers: Headers) -> None:
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        raise Forbidden("this request comes from a web page of another origin", code="foreign_origin")
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    if path in BODY_OPTIONAL and not has_body:
        return
    if path in GUARDED_OUTSIDE_V1 and "content-type" not in headers:
        return
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType("the body must be JSON: send 'Content-Type: application/json'")


class AccessMiddleware:
    """Answers what the policy refuses; everything else passes."""

    def __init__(self, app: App, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._policy.check(scope["method"], scope["path"], Headers(scope=scope))
            except FlexServError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def error_response(error: FlexServError) -> JSONResponse:
    """The OpenAI-shaped answer for one of our errors."""
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error.body(), status_code=error.status, headers=headers)
