"""The backend's errors: one tree, translated once into an OpenAI-shaped body at the HTTP border.

FlexServError
├── BadRequest            400  the caller's body or parameter; `param` names it
├── Unauthorized          401  a token is missing or wrong
├── Forbidden             403  not_declared, foreign origin
├── NotFound              404  model_not_found
├── RequestTimeout        408  the body stopped coming
├── Conflict              409  wrong_instance
├── TooLarge              413  request body
├── UnsupportedMediaType  415  a mutation whose body is not declared as JSON
├── Unprocessable         422  unsupported_model
├── Busy                  429  queue_full; always has retry_after
├── ServerFault           500  load_failed and faults of ours
├── BadGateway            502  hub_unavailable
├── Unavailable           503  model_loading, draining, not_synced ...; always has retry_after
└── InsufficientStorage   507  insufficient_memory, insufficient_storage
"""

from typing import Any, ClassVar

RETRY_SECONDS = 5.0
"""When to ask again where nobody knows better."""


class FlexServError(Exception):
    """Base of all errors that a client may see. `code` is machine-readable; `retry_after` is in seconds."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    default_retry_after: ClassVar[float | None] = None

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        **details: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param
        self.retry_after = self.default_retry_after if retry_after is None else retry_after
        self.details = details

    def copy(self) -> "FlexServError":
        """The same error for one more receiver: one exception object must not be raised twice."""
        return type(self)(
            self.message, code=self.code, param=self.param, retry_after=self.retry_after, **self.details
        )

    def body(self) -> dict[str, Any]:
        """The `{"error": {...}}` object of the OpenAI API, with the numbers in `details` beside the four
        fields.
        """
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
                **self.details,
            }
        }


class BadRequest(FlexServError):
    """The caller's request cannot be served as it is written."""

    status = 400
    type = "invalid_request_error"


class Unauthorized(FlexServError):
    """A token is needed, and none or a wrong one came."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class Forbidden(FlexServError):
    """The caller is known and still may not."""

    status = 403
    type = "permission_error"


class NotFound(FlexServError):
    """No such model, here or on the hub."""

    status = 404
    type = "invalid_request_error"
    default_code = "model_not_found"


class RequestTimeout(FlexServError):
    """The rest of the request's body did not come."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"


class Conflict(FlexServError):
    """The request was meant for another instance."""

    status = 409
    type = "invalid_request_error"
    default_code = "wrong_instance"


class TooLarge(FlexServError):
    """The body exceeds --max-request-bytes."""

    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"


class UnsupportedMediaType(FlexServError):
    """The body is not declared as JSON."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class Unprocessable(FlexServError):
    """The model exists and cannot be served by this backend."""

    status = 422
    type = "invalid_request_error"
    default_code = "unsupported_model"


class Busy(FlexServError):
    """Too many requests wait for this model."""

    status = 429
    type = "rate_limit_error"
    default_code = "queue_full"
    default_retry_after = RETRY_SECONDS


class ServerFault(FlexServError):
    """Our fault."""

    status = 500
    type = "server_error"


class BadGateway(FlexServError):
    """The model hub could not be reached or answered with an error."""

    status = 502
    type = "server_error"
    default_code = "hub_unavailable"


class Unavailable(FlexServError):
    """Not now: a load is under way, the server drains, or memory is short."""

    status = 503
    type = "server_error"
    default_retry_after = RETRY_SECONDS


class InsufficientStorage(FlexServError):
    """The model does not fit: insufficient_memory or insufficient_storage, with the numbers in `details`."""

    status = 507
    type = "server_error"
    default_code = "insufficient_memory"
