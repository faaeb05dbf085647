"""What went wrong on an accelerator: memory that ran out, or a fault that only a new process gets rid of.

After an illegal access CUDA answers every later call of the process with the same error: the context is lost.
Torch raises such an error wherever the next call happens to be, and calls all of them RuntimeErrors, so they
are told apart by code and text. Imports neither torch nor anything that needs it.
"""

import errno
import logging
import re
from collections.abc import Iterator

from hf_transformers_backend.errors import Unavailable

log = logging.getLogger(__name__)

# cudaError_t; HIP's codes are the same.
STICKY_CODES = frozenset({214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999})
_STICKY_TEXT = re.compile(
    r"(?:CUDA|HIP|XPU)(?: driver| runtime)? error:.*?("
    r"illegal memory access|device-side assert|launch timed out|hardware stack error|illegal instruction"
    r"|misaligned address|operation not supported on global/shared address space|invalid program counter"
    r"|unspecified launch failure|context is destroyed|uncorrectable ECC error|uncorrectable NVLink error"
    r"|peer GPU memory over nvlink|unknown error)",
    re.IGNORECASE | re.DOTALL,
)
_OUT_OF_MEMORY_TEXT = re.compile(
    r"(?:CUDA|HIP|XPU) error: out of memory|CU(?:BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED"
    r"|can't allocate memory|MPS backend out of memory|XPU out of memory",
    re.IGNORECASE,
)


def sticky_fault(error: BaseException) -> str | None:
    """What the device said, in one line, if `error` or one that led to it is a fault that stays."""
    for one in _chain(error):
        if not isinstance(one, RuntimeError):
            continue
        found = _STICKY_TEXT.search(str(one))
        if found is not None or getattr(one, "error_code", None) in STICKY_CODES:
            return str(one).strip().partition("\n")[0]
    return None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host; nothing is broken then."""
    return any(
        isinstance(one, MemoryError)
        or (isinstance(one, OSError) and one.errno == errno.ENOMEM)
        or type(one).__name__ == "OutOfMemoryError"
        or (isinstance(one, RuntimeError) and _OUT_OF_MEMORY_TEXT.search(str(one)) is not None)
        for one in _chain(error)
    )


class DeviceHealth:
    """The first fault that stays, for the life of the process. Reading it takes no lock."""

    def __init__(self) -> None:
        self._fault: str | None = None

    @property
    def fault(self) -> str | None:
        """Why only a restart helps; None while the device works."""
        return self._fault

    def note(self, error: BaseException) -> None:
        """Look at what torch work raised, from any thread."""
        reason = sticky_fault(error)
        if reason is not None and self._fault is None:
            self._fault = reason
            log.critical("the device has failed and only a restart helps; no more work is taken: %s", reason)

    def check(self) -> None:
        """Raise Unavailable once the device has failed."""
        if self._fault is not None:
            raise Unavailable(
                "the device of this server has failed, only a restart helps; ask another replica",
                code="device_failed",
                retry_after=RESTART_SECONDS,
            )


RESTART_SECONDS = 30.0
"""What a restart of the container takes at least."""


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or following.__context__
