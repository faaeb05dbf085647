"""Streams of one model without a gap between them, so that the model is in use whenever something happens."""

import contextlib
import threading
from collections.abc import Iterator

import openai

AT_ONCE = 2
TOKENS = 25


class EndlessStreams:
    """Two clients, each of which asks again as soon as its answer is complete.

    `completed` counts whole answers; `refused` are the codes with which new ones were declined, which ends a
    client; `broken` tells of answers that began and did not come to their end.
    """

    def __init__(self, client: openai.OpenAI, model: str) -> None:
        self.completed = 0
        self.refused: list[str | None] = []
        self.broken: list[str] = []
        self._client = client
        self._model = model
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, name=f"stream-{n}") for n in range(AT_ONCE)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 180) -> None:
        """Let the answers under way come to their end."""
        self._stop.set()
        self.await_end(timeout)

    def await_end(self, timeout: float) -> None:
        """Wait until both clients have ended, because they were refused or stopped."""
        for thread in self._threads:
            thread.join(timeout)
            assert not thread.is_alive(), f"an answer is not complete after {timeout} s"

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                stream = self._client.chat.completions.create(
                    model=self._model,
                    messages=[{"role": "user", "content": "Write a long story about a dragon."}],
                    max_tokens=TOKENS,
                    temperature=0,
                    stream=True,
                )
            except openai.APIStatusError as error:
                with self._lock:
                    self.refused.append(error.code)
                return
            try:
                *_, last = stream
                end = last.choices[0].finish_reason
            except (openai.APIError, OSError) as error:
                end = None
                with self._lock:
                    self.broken.append(repr(error))
            with self._lock:
                self.completed += end is not None


@contextlib.contextmanager
def endless_streams(client: openai.OpenAI, model: str) -> Iterator[EndlessStreams]:
    """Keep the model in use while the block runs."""
    streams = EndlessStreams(client, model)
    streams.start()
    try:
        yield streams
    finally:
        streams.stop()
