"""The id that ties the log lines of one request to each other and to its client.

Threads do not inherit it: work that is handed to one is wrapped with `carrying`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    """Of the request that this code works for, None outside of one."""
    return _current.get()


@contextmanager
def request_id_of(request_id: str | None) -> Iterator[None]:
    """What runs inside works for the request of that id."""
    token = _current.set(request_id)
    try:
        yield
    finally:
        _current.reset(token)


def carrying(work: Callable[[], T]) -> Callable[[], T]:
    """`work`, to be run by another thread for the request that is current now."""
    request_id = _current.get()

    def carried() -> T:
        with request_id_of(request_id):
            return work()

    return carried
