"""Understand a chat completions body."""

from collections.abc import Mapping
from typing import Any

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.generation_config import generation_config_of
from hf_transformers_backend.generation.request import ChatPrompt, GenerationRequest, Message, Sampling
from hf_transformers_backend.generation.template import check_template_names
from hf_transformers_backend.generation.validation import json_object, validated
from hf_transformers_backend.schemas.completions import ChatMessage, ChatRequest, Penalizing


def understand_chat(body: Any, *, block_unexpected: bool = False) -> GenerationRequest:
    """One conversation. Raises BadRequest naming the field."""
    asked = validated(ChatRequest, body, block_unexpected=block_unexpected)
    messages = tuple(_message(message, f"messages[{i}]") for i, message in enumerate(asked.messages))
    check_turns(messages, "messages")
    offered = asked.tools if asked.tools and asked.tool_choice != "none" else []
    return GenerationRequest(
        model=asked.model,
        prompts=(
            ChatPrompt(
                messages,
                tools=tuple(tool.model_dump(exclude_none=True) for tool in offered),
                template_kwargs=template_kwargs(
                    asked.chat_template_kwargs, asked.enable_thinking, asked.reasoning_effort
                ),
            ),
        ),
        sampling=sampling_of(asked),
        stop=stop_of(asked),
        max_tokens=asked.max_completion_tokens or asked.max_tokens,
        parallel_tool_calls=asked.parallel_tool_calls is not False,
        stream=bool(asked.stream),
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
    )


def sampling_of(asked: Penalizing) -> Sampling:
    """The sampling fields that chat and text completions share."""
    return Sampling(
        temperature=asked.temperature,
        top_p=asked.top_p,
        seed=asked.seed,
        presence_penalty=asked.presence_penalty or 0.0,
        frequency_penalty=asked.frequency_penalty or 0.0,
        logit_bias=_logit_bias(asked.logit_bias or {}),
        generation_config=generation_config_of(asked.generation_config),
    )


def stop_of(asked: Penalizing) -> tuple[str, ...]:
    """Stop texts, one or several."""
    return (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())


def template_kwargs(
    given: Mapping[str, Any] | None, enable_thinking: bool | None, reasoning_effort: str | None
) -> dict[str, Any]:
    """Variables for the chat template: the dict first, then the top-level shorthands, which win.

    Null is absent.
    """
    values = {name: value for name, value in (given or {}).items() if value is not None}
    check_template_names(values, "chat_template_kwargs")
    if reasoning_effort is not None:
        values["reasoning_effort"] = reasoning_effort
    if enable_thinking is not None:
        values["enable_thinking"] = enable_thinking
    return values


def check_turns(messages: tuple[Message, ...], where: str) -> None:
    """The model answers; so the last word must not be its own."""
    if not messages:
        raise BadRequest(f"{where}: needs at least one message", param=where)
    last = len(messages) - 1
    if messages[last]["role"] == "assistant":
        raise BadRequest(
            f"{where}[{last}].role: the last message must not be the assistant's; "
            "end with a user or tool message",
            param=f"{where}[{last}].role",
        )


def _message(message: ChatMessage, where: str) -> Message:
    assistant = message.role == "assistant"
    if not assistant and message.content is None:
        raise BadRequest(
            f"{where}.content: is required for the role {message.role}", param=f"{where}.content"
        )
    if assistant and message.content is None and not message.tool_calls and message.refusal is None:
        raise BadRequest(
            f"{where}: an assistant message needs content or tool_calls", param=f"{where}.content"
        )
    if message.tool_calls and not assistant:
        raise BadRequest(
            f"{where}.tool_calls: only assistant messages have them", param=f"{where}.tool_calls"
        )
    for i, call in enumerate(message.tool_calls or ()):
        json_object(call.function.arguments, f"{where}.tool_calls[{i}].function.arguments")
    values = message.model_dump(exclude_none=True)
    refusal = values.pop("refusal", None)
    if "content" not in values and not values.get("tool_calls"):
        values["content"] = refusal or ""
    if isinstance(values.get("content"), list):
        values["content"] = [_part(part) for part in values["content"]]
    return values


def _part(part: dict[str, Any]) -> dict[str, Any]:
    """A refusal was said like any text."""
    return {"type": "text", "text": part["refusal"]} if part["type"] == "refusal" else part


def _logit_bias(bias: Mapping[str, float]) -> dict[int, float]:
    values: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) < 12):
            raise BadRequest(
                f"logit_bias: {key!r} is not a token id; keys are token ids in digits", param="logit_bias"
            )
        values[int(key)] = value
    return values
