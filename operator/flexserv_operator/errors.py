"""The operator's errors, one tree.

OperatorError
├── BadSettings           a flag or variable is wrong; the text names it and the remedy
├── NotServed             the API server does not know FlexServModels, or cannot be reached at start
├── ApiServerError        one call to the API server failed
│   ├── ApiServerUnreachable  no answer, or not in time, or it is too busy
│   ├── ApiServerForbids  the operator's Role lacks a right
│   ├── ObjectGone        the object is not there any more, or another one has its name
│   └── ObjectChanged     the object changed in between; the next cycle sees the change
└── BackendError          one call to a backend pod failed; `reason` is a word for status and metrics
    ├── BackendUnreachable   no answer, or not in time
    ├── BackendIncredible    the answer cannot be true: not the contract's JSON, or another pod's
    └── BackendRefused       a clear no, with the contract's `code`
"""


class OperatorError(Exception):
    """Base of everything that the operator raises on purpose."""


class BadSettings(OperatorError):
    """A setting is missing or has a value that cannot be used."""


class NotServed(OperatorError):
    """FlexServModels cannot be watched: the operator has nothing to do yet."""


class ApiServerError(OperatorError):
    """The API server refused a call, failed, or did not answer in time."""


class ApiServerUnreachable(ApiServerError):
    """The API server could not be reached, did not answer in time, or has too much to do (429, 5xx)."""


class ApiServerForbids(ApiServerError):
    """The operator may not do this, or nothing at all (401, 403)."""


class ObjectGone(ApiServerError):
    """The object was deleted (or deleted and made anew under its name)."""


class ObjectChanged(ApiServerError):
    """A write met a newer object."""


class BackendError(OperatorError):
    """A call to one backend pod failed; `reason` is CamelCase, from a closed list."""

    reason = "BackendError"

    @property
    def calls_for_somebody(self) -> bool:
        """Whether it stays until a person mends it."""
        return False


class BackendUnreachable(BackendError):
    """The pod did not answer: refused, reset, or silent for longer than --poll-timeout-seconds."""

    reason = "BackendUnreachable"


class BackendIncredible(BackendError):
    """The pod answered what its contract rules out; nothing of the answer is used."""

    reason = "BackendIncredible"


class BackendRefused(BackendError):
    """The pod said no. `status` is the HTTP status, `code` the machine-readable word of the error body;
    `entry` is the index in the declared list of the model at fault, where the pod names one."""

    reason = "BackendRefused"

    def __init__(self, status: int, code: str, message: str, entry: int | None = None) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.entry = entry

    @property
    def calls_for_somebody(self) -> bool:
        return self.status in (401, 403)  # the token is missing, wrong, or not the admin's
