"""Answer in the objects of the text completions API: one text_completion, whole or in pieces."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.generation.answer_chat import usage_of
from hf_transformers_backend.generation.events import Finish, TextDelta
from hf_transformers_backend.generation.identifiers import new_id
from hf_transformers_backend.generation.serving import IndexedEvent

Echo = Callable[[int], str]
"""The text of a prompt, by its index."""


def text_completion(model: str, events: Iterable[IndexedEvent], echo: Echo | None) -> dict[str, Any]:
    """One choice for each prompt."""
    texts: dict[int, list[str]] = {}
    finishes: dict[int, Finish] = {}
    for item in events:
        text = texts.setdefault(item.index, [echo(item.index)] if echo else [])
        if isinstance(item.event, TextDelta):
            text.append(item.event.text)
        elif isinstance(item.event, Finish):
            finishes[item.index] = item.event
    return {
        "id": new_id("cmpl-"),
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(index, "".join(texts[index]), end.reason) for index, end in finishes.items()],
        "usage": usage_of(finishes.values()),
    }


class CompletionChunks:
    """The answer in pieces; those of a prompt carry its index."""

    named = False
    end_marker = True

    def __init__(self, model: str, *, include_usage: bool, echo: Echo | None) -> None:
        self._head = {
            "id": new_id("cmpl-"),
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._include_usage = include_usage
        self._echo = echo
        self._echoed: set[int] = set()
        self._finishes: list[Finish] = []

    def opening(self) -> list[dict[str, Any]]:
        """Nothing: text completions begin with text."""
        return []

    def on(self, item: IndexedEvent) -> list[dict[str, Any]]:
        """Text, or the end of one prompt's answer.

        Before the first the prompt itself, if it is to be echoed.
        """
        chunks = []
        if self._echo is not None and item.index not in self._echoed:
            self._echoed.add(item.index)
            chunks.append(self._chunk(_choice(item.index, self._echo(item.index), None)))
        if isinstance(item.event, TextDelta):
            chunks.append(self._chunk(_choice(item.index, item.event.text, None)))
        elif isinstance(item.event, Finish):
            self._finishes.append(item.event)
            chunks.append(self._chunk(_choice(item.index, "", item.event.reason)))
        return chunks

    def closing(self) -> list[dict[str, Any]]:
        """The usage, if it was asked for, without choices."""
        if not self._include_usage:
            return []
        return [{**self._head, "choices": [], "usage": usage_of(self._finishes)}]

    def failed(self, error: FlexServError) -> list[dict[str, Any]]:
        """The error object."""
        return [error.body()]

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head, "choices": [choice]}
        return {**chunk, "usage": None} if self._include_usage else chunk


def _choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}
