"""Server-sent events: how an answer's objects become bytes, and how a stream fails in a well-formed way."""

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Protocol

from hf_transformers_backend.errors import FlexServError, ServerFault
from hf_transformers_backend.generation.serving import IndexedEvent

_log = logging.getLogger(__name__)


class StreamWriter(Protocol):
    """Turns events into the objects of one API."""

    named: bool
    """Whether each object goes out under its `type` as the event's name."""
    end_marker: bool
    """Whether the stream ends with `[DONE]`."""

    def opening(self) -> list[dict[str, Any]]:
        """Before the first event."""

    def on(self, item: IndexedEvent) -> list[dict[str, Any]]:
        """For each event."""

    def closing(self) -> list[dict[str, Any]]:
        """After the last event."""

    def failed(self, error: FlexServError) -> list[dict[str, Any]]:
        """Instead of the rest, when generation fails."""


async def write_stream(
    writer: StreamWriter, events: AsyncIterator[IndexedEvent]
) -> AsyncGenerator[bytes, None]:
    """The bytes of a whole stream. A failure becomes the API's error event, then the end."""
    yield _frames(writer, writer.opening())
    try:
        async for item in events:
            if objects := writer.on(item):
                yield _frames(writer, objects)
        last = writer.closing()
    except Exception as error:  # the status line is out: the error can only be an event
        last = writer.failed(error_event(error))
    if last:
        yield _frames(writer, last)
    if writer.end_marker:
        yield b"data: [DONE]\n\n"


def last_words(writer: StreamWriter, error: FlexServError) -> bytes:
    """The end of a stream that somebody else ends: the API's error event and the end marker."""
    end = b"data: [DONE]\n\n" if writer.end_marker else b""
    return _frames(writer, writer.failed(error)) + end


def error_event(error: Exception) -> FlexServError:
    """What a client may see of an error; one that is not ours is logged and hidden."""
    if isinstance(error, FlexServError):
        return error
    _log.error("a stream failed", exc_info=error)
    return ServerFault("internal error; the server's log says why", code="internal_error")


def _frames(writer: StreamWriter, objects: list[dict[str, Any]]) -> bytes:
    lines = []
    for value in objects:
        if writer.named:
            lines.append(f"event: {value['type']}\n")
        lines.append(f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n")
    return "".join(lines).encode("utf-8", errors="replace")
