"""What a generation yields, in order: any number of deltas, then exactly one Finish.

Failures are raised, not yielded.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the visible answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One complete call of a function; `arguments` is a JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The end: why, and how many tokens went in and came out (the end-of-sequence token counts); of the
    latter `reasoning_tokens` were thinking.
    """

    reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCall
Event: TypeAlias = Delta | Finish
