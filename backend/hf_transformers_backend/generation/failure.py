"""What a caller is told when torch work fails."""

import logging

from hf_transformers_backend.device_fault import is_out_of_memory
from hf_transformers_backend.errors import BadRequest, FlexServError, ServerFault, Unavailable

_log = logging.getLogger(__name__)

MEMORY_RETRY_SECONDS = 30
_OF_VALUES = (ValueError, TypeError, LookupError, ArithmeticError)
_NOTHING_TO_DRAW = "probability tensor"
"""In torch's error for scores that leave no token to draw."""


def explained_failure(error: BaseException, values_of: str | None = None) -> BaseException:
    """Our error for `error`, which is logged unless it is one of ours already. `values_of` is a field of the
    request whose values went unseen into torch work, and may be what is wrong.
    """
    if isinstance(error, FlexServError):
        return error
    if is_out_of_memory(error):
        _log.warning("out of device memory while generating: %s", error)
        return Unavailable(
            "not enough memory on the device for this request",
            code="insufficient_memory",
            retry_after=MEMORY_RETRY_SECONDS,
        )
    told = _without_quotes(error)
    trace = (type(told), told, error.__traceback__)
    if values_of is not None and (isinstance(error, _OF_VALUES) or _NOTHING_TO_DRAW in str(error)):
        _log.info("the values in %s cannot be generated with (%s)", values_of, type(error).__name__)
        _log.debug("where that became known", exc_info=trace)
        return BadRequest(
            f"{values_of}: this model cannot generate with these values together; leave some of them out",
            param=values_of,
        )
    _log.error("generation failed", exc_info=trace)
    return ServerFault("the generation failed; the server's log says why", code="generation_failed")


def _without_quotes(error: BaseException) -> BaseException:
    """What may be logged of an error: torch's speak of shapes and devices, others may quote the request."""
    if isinstance(error, RuntimeError):
        return error
    return RuntimeError(f"{type(error).__name__}, whose message is left out: it may quote the request")
