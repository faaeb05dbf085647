"""Wait for something to become true, with a bound: the only way a test here waits."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T], timeout: float, interval: float = 0.1) -> T:
    """Call `probe` until its result is truthy and return it.

    An exception counts as "not yet"; after `timeout` seconds the last one is raised again, or an
    AssertionError that shows the last value.
    """
    deadline = time.monotonic() + timeout
    while True:
        failure: Exception | None = None
        value: T | None = None
        try:
            value = probe()
            if value:
                return value
        except Exception as error:
            failure = error
        if time.monotonic() >= deadline:
            if failure is not None:
                raise failure
            raise AssertionError(f"not true after {timeout} s; last value: {value!r}")
        time.sleep(interval)
