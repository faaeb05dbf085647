"""Answer in the objects of the responses API: a response, or the full order of its events."""

import time
from collections.abc import Iterable
from typing import Any

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.generation.events import Event, Finish, ReasoningDelta, TextDelta, ToolCall
from hf_transformers_backend.generation.identifiers import new_id
from hf_transformers_backend.generation.output_items import CallItem, MessageItem, OutputItem, ReasoningItem
from hf_transformers_backend.generation.serving import IndexedEvent

Json = dict[str, Any]


def response(model: str, events: Iterable[Event], echoed: Json) -> Json:
    """The whole answer as one object: what the last event of the stream would carry."""
    writer = ResponseEvents(model, echoed)
    writer.opening()
    for event in events:
        writer.on(IndexedEvent(0, event))
    final: Json = writer.closing()[-1]["response"]
    return final


class ResponseEvents:
    """The events of one response; each has the next sequence number."""

    named = True
    end_marker = False

    def __init__(self, model: str, echoed: Json) -> None:
        self._base = {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "background": False,
            **echoed,
        }
        self._sequence = 0
        self._items: list[OutputItem] = []
        self._open: OutputItem | None = None
        self._finish: Finish | None = None

    def opening(self) -> list[Json]:
        """The response exists, and is under way."""
        value = self._response("in_progress")
        return [
            self._event("response.created", response=value),
            self._event("response.in_progress", response=value),
        ]

    def on(self, item: IndexedEvent) -> list[Json]:
        """Opens and closes output items as the kind of delta changes."""
        event = item.event
        if isinstance(event, Finish):
            self._finish = event
            return []
        if isinstance(event, ToolCall):
            call = CallItem(event.name)
            return [*self._begin(call), *self._numbered(call.delta(event.arguments)), *self._end()]
        kind = MessageItem if isinstance(event, TextDelta) else ReasoningItem
        begun = [] if isinstance(self._open, kind) else self._begin(kind())
        assert self._open is not None and isinstance(event, TextDelta | ReasoningDelta)
        return [*begun, *self._numbered(self._open.delta(event.text))]

    def closing(self) -> list[Json]:
        """The end of the open item, and the whole response.

        An answer without any output gets an empty message.
        """
        assert self._finish is not None, "a generation ends with Finish"
        events = [] if self._items else self._begin(MessageItem())
        cut = self._finish.reason == "length"
        events += self._end("incomplete" if cut else "completed")
        status = "incomplete" if cut else "completed"
        return [*events, self._event(f"response.{status}", response=self._response(status))]

    def failed(self, error: FlexServError) -> list[Json]:
        """The response, failed."""
        problem = {"code": "server_error", "message": error.message}
        return [self._event("response.failed", response={**self._response("failed"), "error": problem})]

    def _begin(self, item: OutputItem) -> list[Json]:
        ended = self._end()
        item.index = len(self._items)
        self._items.append(item)
        self._open = item
        return [*ended, *self._numbered(item.begin())]

    def _end(self, status: str = "completed") -> list[Json]:
        if self._open is None:
            return []
        item, self._open = self._open, None
        return self._numbered(item.end(status))

    def _numbered(self, events: Iterable[Json]) -> list[Json]:
        return [self._event(**event) for event in events]

    def _event(self, type: str, **fields: Any) -> Json:
        self._sequence += 1
        return {"type": type, "sequence_number": self._sequence - 1, **fields}

    def _response(self, status: str) -> Json:
        cut = status == "incomplete"
        return {
            **self._base,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [item.value for item in self._items],
            "usage": _usage(self._finish) if self._finish is not None else None,
        }


def _usage(finish: Finish) -> Json:
    return {
        "input_tokens": finish.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": finish.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": finish.reasoning_tokens},
        "total_tokens": finish.prompt_tokens + finish.completion_tokens,
    }
