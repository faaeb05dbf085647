"""What fetches from a network is tried again: one cut connection must not end a run of an hour."""

import time
from collections.abc import Callable
from typing import TypeVar

from lab.errors import CommandError, TookTooLong
from lab.progress import say

T = TypeVar("T")
PAUSES = (3.0, 15.0)
"""Seconds before the second and the third try. Tools keep what they have, so a try costs what is missing."""


def retry(fetch: Callable[[], T], pause: Callable[[float], None] = time.sleep) -> T:
    """What `fetch` returns. A CommandError is final only at the last try, a TookTooLong at once."""
    for seconds in PAUSES:
        try:
            return fetch()
        except TookTooLong:
            raise
        except CommandError as error:
            say(f"failed, once more in {seconds:.0f} s: {error}")
            pause(seconds)
    return fetch()
