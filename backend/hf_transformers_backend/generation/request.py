"""The one internal request that every text route is understood into.

Values only; nothing here knows HTTP or torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

Message: TypeAlias = dict[str, Any]
"""A chat message in the shape of the chat completions API."""


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, to be written out by the model's own chat template; `where` is the field of the request
    that brought it.
    """

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    where: str = "messages"


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text that the model continues."""

    text: str
    where: ClassVar[str] = "prompt"


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids that the model continues."""

    ids: tuple[int, ...]
    where: ClassVar[str] = "prompt"


@dataclass(frozen=True, slots=True)
class InfillPrompt:
    """A text with a hole that the model fills."""

    prefix: str
    suffix: str
    where: ClassVar[str] = "prompt"


Prompt: TypeAlias = ChatPrompt | TextPrompt | TokenPrompt | InfillPrompt


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. None means: as the model's own generation config says."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    generation_config: Mapping[str, Any] | None = None
    """Replaces the model's generation config before the other fields apply."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Everything that decides what is generated and in which form it is answered."""

    model: str | None
    prompts: tuple[Prompt, ...]
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    parallel_tool_calls: bool = True
    stream: bool = False
    include_usage: bool = False
    echo: bool = False
