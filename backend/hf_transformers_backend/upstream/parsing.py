"""Tool calls and reasoning in a model's raw text, by upstream's response templates.

Upstream's parser raises where a tool call is malformed and is then unusable; here the raw text of such a
call comes back as plain content and parsing goes on.
"""

import logging
from dataclasses import dataclass
from typing import Any, Literal

from transformers.cli.serving.utils import (
    ReasoningText,
    ResponseParser,
    ToolCall,
    get_response_template,
    response_events_to_chunks,
)
from transformers.utils.chat_parsing.content_parsers import STREAMABLE_PARSERS
from transformers.utils.chat_template_utils import _REASONING_FIELDS

_log = logging.getLogger(__name__)
_Malformed = (ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True, slots=True)
class Parsed:
    """One piece of a parsed assistant message.

    `name` is set for tool calls, whose text is their JSON arguments.
    """

    kind: Literal["content", "reasoning", "tool_call"]
    text: str
    name: str = ""


def response_template(
    processor: Any, model: Any, *, tools: bool, reasoning: bool = True
) -> dict[str, Any] | None:
    """The model's response template without the fields that this request does not want parsed, or None.

    Text that looks like a call is only a call when tools were offered.
    """
    template = get_response_template(processor, model)
    if template is None:
        return None
    unwanted: set[str] = set() if tools else {"tool_calls"}
    if not reasoning:
        unwanted |= set(_REASONING_FIELDS)
    return {**template, "fields": {name: f for name, f in template["fields"].items() if name not in unwanted}}


class AssistantParser:
    """Feed raw text (special tokens included); get content, reasoning and complete tool calls."""

    def __init__(self, template: dict[str, Any], *, prompt: str, tools: list[dict[str, Any]] | None) -> None:
        self._template = template
        self._tools = tools
        self._parser = ResponseParser(template, prefix=prompt, tools=tools)
        self._delivered = self._parser._pos
        self.opening = self._translate(self._parser.initial_events)

    def feed(self, text: str) -> list[Parsed]:
        """What `text` completes.

        Character by character, so that the raw text of a failed call is known exactly.
        """
        return [piece for character in text for piece in self._feed_one(character)]

    def finish(self) -> list[Parsed]:
        """What was still held back. A tool call cut off in its middle is content."""
        try:
            _, events = self._parser.finalize()
            return self._translate(events)
        except _Malformed as error:
            _log.info("unfinished tool call kept as text: %s", type(error).__name__)
            raw = self._parser._buffer[self._delivered :]
            return [Parsed("content", raw)] if raw else []

    def _feed_one(self, character: str) -> list[Parsed]:
        try:
            pieces = self._translate(self._parser.feed(character))
        except _Malformed as error:
            _log.info("malformed tool call kept as text: %s", type(error).__name__)
            raw = self._parser._buffer[self._delivered : self._parser._pos]
            rest = self._parser._buffer[self._parser._pos :]
            self._parser = ResponseParser(self._template, prefix="", tools=self._tools)
            self._delivered = self._parser._pos
            return [Parsed("content", raw), *(self._feed_one(rest) if rest else [])]
        if not self._in_structured_region():
            self._delivered = self._parser._pos
        return pieces

    def _in_structured_region(self) -> bool:
        current = self._parser._current
        return current is not None and self._parser._spec.fields[current].content not in STREAMABLE_PARSERS

    @staticmethod
    def _translate(events: list[dict[str, Any]]) -> list[Parsed]:
        return [_piece(chunk) for chunk in response_events_to_chunks(events)]


def _piece(chunk: Any) -> Parsed:
    if isinstance(chunk, ToolCall):
        if not isinstance(chunk.name, str) or not chunk.name:
            raise ValueError("a tool call without a name")
        return Parsed("tool_call", chunk.arguments, chunk.name)
    return Parsed("reasoning" if isinstance(chunk, ReasoningText) else "content", str(chunk))
