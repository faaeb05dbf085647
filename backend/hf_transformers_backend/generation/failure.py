"""What a caller is told when torch work fails."""

import logging

from hf_transformers_backend.device_fault import is_out_of_memory
from hf_transformers_backend.errors import FlexServError, ServerFault, Unavailable

_log = logging.getLogger(__name__)

MEMORY_RETRY_SECONDS = 30


def explained_failure(error: BaseException) -> BaseException:
    """Our error for `error`, which is logged unless it is one of ours already."""
    if isinstance(error, FlexServError):
        return error
    if is_out_of_memory(error):
        _log.warning("out of device memory while generating: %s", error)
        return Unavailable(
            "not enough memory on the device for this request",
            code="insufficient_memory",
            retry_after=MEMORY_RETRY_SECONDS,
        )
    _log.error("generation failed", exc_info=error)
    return ServerFault("the generation failed; the server's log says why", code="generation_failed")
