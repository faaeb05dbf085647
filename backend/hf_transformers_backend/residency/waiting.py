"""How a request waits for its model."""

import asyncio
from collections.abc import Callable

from hf_transformers_backend.errors import Unavailable
from hf_transformers_backend.residency.lease import Lease
from hf_transformers_backend.residency.load_job import Waiter
from hf_transformers_backend.residency.shelf import RETRY_SECONDS


async def wait_for_lease(waiter: Waiter, seconds: float, stop_waiting: Callable[[], None]) -> Lease:
    """The lease that the load gives to `waiter`; raises the load's error, and Unavailable after `seconds`.

    `stop_waiting` is called in every case, before the end. A lease that comes too late is given back.
    """
    lease = asyncio.wrap_future(waiter.lease)
    try:
        await asyncio.wait({lease}, timeout=seconds)
    except BaseException:
        stop_waiting()
        if waiter.lease.done() and waiter.lease.exception() is None:
            waiter.lease.result().release()
        _ = lease.cancel() or lease.exception()
        raise
    stop_waiting()
    if not lease.done():
        lease.cancel()
    if waiter.lease.done() and not waiter.lease.cancelled():
        return waiter.lease.result() if lease.cancelled() else lease.result()
    raise Unavailable(
        f"'{waiter.requested}' is still being loaded; try again",
        code="model_loading",
        retry_after=RETRY_SECONDS,
    )
