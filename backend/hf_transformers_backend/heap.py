"""The C library's heap: what is freed must go back to the kernel. Without glibc nothing is done."""

import ctypes
import logging
import os
import time
from collections.abc import Callable
from functools import cache
from mmap import PAGESIZE
from pathlib import Path

logger = logging.getLogger(__name__)

M_MMAP_THRESHOLD, M_ARENA_MAX = -3, -8  # malloc.h
LARGE_BLOCK_BYTES = 1024 * 1024
SPARE_BYTES = 256 * 1024 * 1024
"""How much may lie free in the heap, for what comes next."""
SWEEP_SECONDS = 5.0


def set_up() -> None:
    """Tell glibc how to lay blocks out, so that what is freed can leave. Call it before threads start.

    Large blocks are mapped each by itself and leave with their owner. By default glibc raises its threshold
    to the largest block ever freed (up to 32 MiB); weights then lie in the heap between small things that
    stay, and a server grows with each load and unload.

    There is one arena for each core that this process may use, as no more threads run at once. By default
    there are eight for each, and every one keeps free pages wherever a load's short-lived threads happened to
    be. A limit of a container's CPU time is not looked at. glibc's own settings win.
    """
    libc = _glibc()
    if libc is None:
        return
    if libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES) != 1:
        logger.warning("the heap's threshold for large blocks cannot be set")
    told = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if not told and libc.mallopt(M_ARENA_MAX, len(os.sched_getaffinity(0))) != 1:
        logger.warning("the heap's number of arenas cannot be set")


def trim() -> None:
    """Hand free heap pages to the kernel."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def measure() -> tuple[int, int]:
    """Bytes that are free in the heap, whether or not their pages are the kernel's again, and the process's
    resident bytes. Both are 0 where there is no glibc, or one before 2.33, which cannot tell.
    """
    libc = _glibc()
    if libc is None or not hasattr(libc, "mallinfo2"):
        return 0, 0
    libc.mallinfo2.argtypes, libc.mallinfo2.restype = (), _MallocInfo
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    return int(libc.mallinfo2().fordblks), resident_pages * PAGESIZE


class Sweeper:
    """Trims the heap after what has taken much of it, such as a large request. For one thread."""

    def __init__(
        self,
        measure: Callable[[], tuple[int, int]] = measure,
        trim: Callable[[], None] = trim,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measure = measure
        self._trim = trim
        self._monotonic = monotonic
        self._due_at = 0.0
        self._free, self._resident = 0, 0

    def sweep(self) -> None:
        """Does something at most every SWEEP_SECONDS, and only where a trim has something to give back."""
        if self._monotonic() < self._due_at:
            return
        self._due_at = self._monotonic() + SWEEP_SECONDS
        free, resident = self._measure()
        freed = free - self._free > SPARE_BYTES
        # Taken and freed again since the last look, it is the same number, and other pages.
        reused = free > SPARE_BYTES and resident - self._resident > SPARE_BYTES
        if freed or reused:
            self._trim()
            self._free, self._resident = self._measure()
        else:
            self._free, self._resident = min(self._free, free), min(self._resident, resident)


class _MallocInfo(ctypes.Structure):
    """malloc.h: struct mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


@cache
def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    libc.mallopt.argtypes, libc.mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    libc.malloc_trim.argtypes, libc.malloc_trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return libc
