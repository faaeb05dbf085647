"""The addresses of host names, looked up by the system on threads that do nothing else.

A look-up cannot be interrupted, and one whose name server is silent takes as long as the system lets it. On
the threads that the event loop lends to everybody, a few of them would keep all other work waiting.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host, best first; raises OSError."""

AT_ONCE = 4
LOOKUP_SECONDS = 10.0
"""For one look-up, the wait for a free thread included."""


class Resolver:
    """A `Resolve` by the system's resolver. For one event loop; who makes it closes it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="flexserv-resolver")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Raises OSError, which TimeoutError is one of, and UnicodeError for what is no host name."""
        try:
            lookup = self._threads.submit(_addresses, host, port)
        except RuntimeError as error:
            raise OSError("the resolver is closed") from error
        async with asyncio.timeout(LOOKUP_SECONDS):
            return await asyncio.wrap_future(lookup)

    def close(self) -> None:
        """Start no more look-ups, and wait for none: a thread whose look-up hangs ends with it."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _addresses(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]
