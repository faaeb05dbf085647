"""The bridge between a generating thread and the event loop.

A streamer for `generate`, a queue for the reader.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import torch
from transformers import StoppingCriteria

from hf_transformers_backend.generation.assistant_text import AssistantText
from hf_transformers_backend.generation.events import Delta, Event, Finish, FinishReason, ReasoningDelta


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class EventStream:
    """Filled by one thread, read by one coroutine. Ends with Finish or by raising what the thread raised."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Event | _Failed] = asyncio.Queue()

    def put(self, event: Event | _Failed) -> None:
        """From any thread. Dropped when the loop is gone: then nobody reads."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    def fail(self, error: BaseException) -> None:
        """From any thread: the reader gets `error` raised."""
        self.put(_Failed(error))

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._queue.get()
            if isinstance(event, _Failed):
                raise event.error
            yield event
            if isinstance(event, Finish):
                return


class Cancellation(StoppingCriteria):
    """Ends `generate` after the token at hand, when the client has gone or the answer is complete."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """From any thread; final."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether the generation is to end."""
        return self._event.is_set()

    def __call__(self, input_ids: torch.LongTensor, scores: Any, **kwargs: Any) -> Any:
        """True for every sequence once cancelled."""
        return torch.full(
            (input_ids.shape[0],), self._event.is_set(), dtype=torch.bool, device=input_ids.device
        )


class TokenStreamer:
    """What `generate` calls with each token: counts it, turns it into deltas and passes those on."""

    def __init__(self, text: AssistantText, stream: EventStream, cancellation: Cancellation) -> None:
        self._text = text
        self._stream = stream
        self.cancellation = cancellation
        self._begun = False
        self.tokens = 0
        self.last: int | None = None
        self._shown_tokens = 0
        self._reasoning_tokens = 0

    def put(self, value: torch.Tensor) -> None:
        """The first call brings the prompt, each later one a token."""
        if not self._begun:
            self.begin()
            return
        for token in value.flatten().tolist():
            self.take(token)

    @property
    def finished(self) -> bool:
        """Whether the answer is complete, whatever tokens may follow."""
        return self._text.finished

    def begin(self) -> None:
        """Send what the prompt has begun of the answer. Only the first call does anything."""
        if not self._begun:
            self._begun = True
            self._send(self._text.start())

    def take(self, token: int) -> None:
        """One generated token. Those after the end of the answer neither count nor show."""
        if self._text.finished or self.cancellation.is_set():
            return
        self.tokens += 1
        self.last = token
        self._send(self._text.feed(token))
        if self._text.finished:
            self.cancellation.set()

    def end(self) -> None:
        """`generate` is through; the engine calls `finish` with what it knows."""

    def finish(self, *, prompt_tokens: int, ended: bool) -> None:
        """Send what was held back and the Finish. `ended`: the model itself ended the answer."""
        self._send(self._text.finish())
        reason: FinishReason = "stop" if ended or self._text.finished else "length"
        if self._text.tool_calls:
            reason = "tool_calls"
        self._stream.put(Finish(reason, prompt_tokens, self.tokens, self._reasoning_tokens))

    def _send(self, deltas: list[Delta]) -> None:
        """Tokens that showed nothing by themselves, such as a tag, count for what comes after them."""
        if deltas:
            if isinstance(deltas[0], ReasoningDelta):
                self._reasoning_tokens += self.tokens - self._shown_tokens
            self._shown_tokens = self.tokens
        for delta in deltas:
            self._stream.put(delta)
