"""Giving memory back, for real: what is merely unreferenced still counts against the machine."""

import gc
import logging
import sys
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

from hf_transformers_backend import heap
from hf_transformers_backend.loader import Servable

logger = logging.getLogger(__name__)

RUNNING_WORK_SECONDS = 60.0
LAST_REFERENCE_SECONDS = 3.0


def release_caches() -> None:
    """Collect garbage, empty the interpreter's and torch's caches, and hand free memory to the kernel."""
    gc.collect()
    _empty_caches()


def forget_frames(error: BaseException) -> None:
    """Clear the frames that `error` and those before it keep alive, and with them what was loaded so far."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        traceback.clear_frames(following.__traceback__)
        following = following.__cause__ or following.__context__


def _empty_caches() -> None:
    _forget_attribute_names()
    torch = sys.modules.get("torch")
    if torch is not None:
        try:
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            elif torch.backends.mps.is_available():
                torch.mps.empty_cache()
        except RuntimeError as error:  # a device that has failed answers nothing else any more
            logger.warning("the device's cache cannot be emptied: %s", str(error).partition("\n")[0])
    heap.trim()


def _forget_attribute_names() -> None:
    """Empty the interpreter's cache of attribute look-ups.

    It keeps the names of what a load has looked up. Each lies between a million objects of that load that are
    gone, and holds their whole MiB of memory; a server then grows with its first loads by as much as the
    largest leaves behind.
    """
    # From Python 3.13 on the call has the longer name.
    clear = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
    clear()


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
