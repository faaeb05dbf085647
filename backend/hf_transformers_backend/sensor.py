"""A reading of something that may never answer: a driver that hangs, a network file system that is away.

It is asked on a thread of its own: who asks waits a bounded time, and one that hangs takes one thread.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class SensorSilent(RuntimeError):
    """No answer in time."""


class Sensor(Generic[T]):
    """Thread-safe. While a question is unanswered no second one is put: who comes later waits for it too."""

    def __init__(self, name: str, read: Callable[[], T], timeout: float) -> None:
        self._name = name
        self._read = read
        self._timeout = timeout
        self._lock = threading.Lock()
        self._asked: Future[T] | None = None

    def begin(self) -> "Future[T]":
        """Put the question, unless it is under way; who wants to do something else meanwhile calls this."""
        with self._lock:
            if self._asked is None or self._asked.done():
                self._asked = Future()
                question = threading.Thread(
                    target=self._answer, args=(self._asked,), name=f"sensor-{self._name}", daemon=True
                )
                question.start()
            return self._asked

    def wait(self, asked: "Future[T]") -> T:
        """The answer to what `begin` put. Raises SensorSilent, and what the reading raises."""
        try:
            return asked.result(self._timeout)
        except TimeoutError:
            raise SensorSilent(f"{self._name}: no answer within {self._timeout:g} s") from None

    def _answer(self, asked: "Future[T]") -> None:
        try:
            asked.set_result(self._read())
        except BaseException as error:  # the top of a thread: who asked gets it
            asked.set_exception(error)
