"""The C library's heap: what is freed must go back to the kernel. Without glibc nothing is done."""

import ctypes
import logging
from functools import cache

logger = logging.getLogger(__name__)

M_MMAP_THRESHOLD = -3  # malloc.h
LARGE_BLOCK_BYTES = 1024 * 1024


def keep_large_blocks_apart() -> None:
    """Map each large block by itself, so that it leaves with its owner. Call it before the first load.

    By default glibc raises its threshold to the largest block ever freed (up to 32 MiB); weights then lie in
    the heap between small things that stay, and a server grows with each load and unload.
    """
    libc = _glibc()
    if libc is not None and libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES) != 1:
        logger.warning("the heap's threshold for large blocks cannot be set")


def trim() -> None:
    """Hand free heap pages to the kernel."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    libc.mallopt.argtypes, libc.mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    libc.malloc_trim.argtypes, libc.malloc_trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return libc
