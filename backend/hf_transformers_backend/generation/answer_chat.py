"""Answer in the objects of the chat completions API: one chat.completion, or its chunks."""

import time
from collections.abc import Iterable
from typing import Any

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.generation.events import Event, Finish, ReasoningDelta, TextDelta, ToolCall
from hf_transformers_backend.generation.identifiers import new_id
from hf_transformers_backend.generation.serving import IndexedEvent


def chat_completion(model: str, events: Iterable[Event]) -> dict[str, Any]:
    """The whole answer as one object."""
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    finish: Finish | None = None
    for event in events:
        if isinstance(event, TextDelta):
            text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            reasoning.append(event.text)
        elif isinstance(event, ToolCall):
            calls.append(_call(event))
        else:
            finish = event
    assert finish is not None, "a generation ends with Finish"
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text), "refusal": None}
    if reasoning:
        message["reasoning_content"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = calls
        message["content"] = message["content"] or None
    return {
        "id": new_id("chatcmpl-"),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish.reason}],
        "usage": usage_of([finish]),
    }


def usage_of(finishes: Iterable[Finish]) -> dict[str, Any]:
    """Token counts of one or several prompts; those of reasoning where there was some."""
    ends = list(finishes)
    prompt = sum(end.prompt_tokens for end in ends)
    completion = sum(end.completion_tokens for end in ends)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    reasoning = sum(end.reasoning_tokens for end in ends)
    return {**usage, "completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning else usage


class ChatChunks:
    """The answer as chat.completion.chunk objects."""

    named = False
    end_marker = True

    def __init__(self, model: str, *, include_usage: bool) -> None:
        self._head = {
            "id": new_id("chatcmpl-"),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._include_usage = include_usage
        self._calls = 0
        self._finish: Finish | None = None

    def opening(self) -> list[dict[str, Any]]:
        """The chunk that says who speaks."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def on(self, item: IndexedEvent) -> list[dict[str, Any]]:
        """One chunk for each event."""
        event = item.event
        if isinstance(event, TextDelta):
            return [self._chunk({"content": event.text})]
        if isinstance(event, ReasoningDelta):
            return [self._chunk({"reasoning_content": event.text})]
        if isinstance(event, ToolCall):
            self._calls += 1
            return [self._chunk({"tool_calls": [{"index": self._calls - 1, **_call(event)}]})]
        self._finish = event
        return [self._chunk({}, event.reason)]

    def closing(self) -> list[dict[str, Any]]:
        """The usage, if it was asked for, in a chunk without choices."""
        if not self._include_usage or self._finish is None:
            return []
        return [{**self._head, "choices": [], "usage": usage_of([self._finish])}]

    def failed(self, error: FlexServError) -> list[dict[str, Any]]:
        """The error object."""
        return [error.body()]

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        chunk = {
            **self._head,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        }
        return {**chunk, "usage": None} if self._include_usage else chunk


def _call(event: ToolCall) -> dict[str, Any]:
    return {
        "id": new_id("call_"),
        "type": "function",
        "function": {"name": event.name, "arguments": event.arguments},
    }
