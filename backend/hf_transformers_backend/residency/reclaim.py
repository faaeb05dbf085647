"""Giving memory back, for real: what is merely unreferenced still counts against the machine."""

import ctypes
import gc
import logging
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Event

from hf_transformers_backend.loader import Servable

logger = logging.getLogger(__name__)

RUNNING_WORK_SECONDS = 60.0
LAST_REFERENCE_SECONDS = 3.0


def release_caches() -> None:
    """Collect garbage, empty torch's caches, and hand free heap pages to the kernel."""
    gc.collect()
    _empty_caches()


def _empty_caches() -> None:
    torch = sys.modules.get("torch")
    if torch is not None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        elif torch.backends.mps.is_available():
            torch.mps.empty_cache()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


def free(take: Callable[[], Servable | None], *, at_exit: bool = False) -> bool:
    """Free what `take` hands over (its caller must keep no reference); true when the memory is back.

    Waits, with bounds, for work that still runs on the model's thread and for the last reference to go.
    `at_exit` leaves the memory to the end of the process: collecting it first would only delay that.
    """
    servable = take()
    if servable is None:
        return True
    executor = servable.executor
    if not at_exit:
        _wait_for_running_work(executor)
    try:
        servable.resources.close()
    except Exception:
        # Somebody's clean-up failed; the weights must go all the same.
        logger.exception("closing the resources of an unloaded model failed")
    executor.shutdown(wait=False, cancel_futures=True)
    if at_exit:
        return True
    last = weakref.ref(servable.weights)
    del servable, executor
    never, pause, waited = Event(), 0.05, 0.0
    gc.collect()
    # A request that has just ended may still be unwinding its frames.
    while last() is not None and waited < LAST_REFERENCE_SECONDS:
        never.wait(pause)
        waited += pause
        pause *= 2
        gc.collect()
    _empty_caches()
    if last() is not None:
        logger.warning("something still refers to an unloaded model; its memory goes with that")
        return False
    return True


def _wait_for_running_work(executor: ThreadPoolExecutor) -> None:
    """One thread, in order: when this ran, whatever was submitted before has ended."""
    try:
        executor.submit(lambda: None).result(timeout=RUNNING_WORK_SECONDS)
    except TimeoutError:
        logger.warning("work on an unloaded model still runs after %.0f s", RUNNING_WORK_SECONDS)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """glibc's malloc_trim, where there is one."""
    try:
        trim = ctypes.CDLL("libc.so.6").malloc_trim
    except (OSError, AttributeError):
        return None
    trim.argtypes = [ctypes.c_size_t]
    trim.restype = ctypes.c_int
    return trim
