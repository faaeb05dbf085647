"""Understand a responses body: its items become chat messages."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import TypeAdapter

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.chat import check_turns, template_kwargs
from hf_transformers_backend.generation.generation_config import generation_config_of
from hf_transformers_backend.generation.request import ChatPrompt, GenerationRequest, Message, Sampling
from hf_transformers_backend.generation.validation import json_object, validated, validated_part
from hf_transformers_backend.schemas.base import InSlices, Items
from hf_transformers_backend.schemas.responses import (
    InputFunctionCall,
    InputFunctionOutput,
    InputItem,
    InputMessage,
    InputReasoning,
    ResponsePart,
    ResponsesRequest,
)

_ITEM: TypeAdapter[Any] = TypeAdapter(InputItem)
_PARTS: TypeAdapter[Any] = TypeAdapter(Annotated[Items[ResponsePart], InSlices])


@dataclass(frozen=True, slots=True)
class ResponsesAsked:
    """The request, and what the response object repeats of it."""

    generation: GenerationRequest
    echoed: dict[str, Any]


def understand_responses(body: Any, *, block_unexpected: bool = False) -> ResponsesAsked:
    """One conversation. Raises BadRequest naming the field."""
    asked = validated(ResponsesRequest, body, block_unexpected=block_unexpected)
    messages = _messages(asked.input)
    if asked.instructions:
        messages = _instructed(asked.instructions, messages)
    check_turns(messages, "input")
    offered = asked.tools if asked.tools and asked.tool_choice != "none" else []
    effort = asked.reasoning.effort if asked.reasoning else None
    prompt = ChatPrompt(
        messages,
        tools=tuple(_nested(tool.model_dump(exclude_none=True)) for tool in offered),
        template_kwargs=template_kwargs(asked.chat_template_kwargs, asked.enable_thinking, effort),
        where="input",
    )
    request = GenerationRequest(
        model=asked.model,
        prompts=(prompt,),
        sampling=Sampling(
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.seed,
            generation_config=generation_config_of(asked.generation_config),
        ),
        max_tokens=asked.max_output_tokens,
        parallel_tool_calls=asked.parallel_tool_calls is not False,
        stream=bool(asked.stream),
    )
    return ResponsesAsked(request, _echoed(asked))


def _echoed(asked: ResponsesRequest) -> dict[str, Any]:
    return {
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {"effort": asked.reasoning.effort if asked.reasoning else None, "summary": None},
        "store": False,
        "temperature": asked.temperature,
        "text": {"format": {"type": "text"}},
        "tool_choice": asked.tool_choice or "auto",
        "tools": [{"parameters": None, "strict": None, **tool.model_dump()} for tool in asked.tools or ()],
        "top_p": asked.top_p,
        "truncation": "disabled",
        "user": asked.user,
    }


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """Templates want the chat API's nesting of a function."""
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def _messages(given: str | list[dict[str, Any]]) -> tuple[Message, ...]:
    if isinstance(given, str):
        return ({"role": "user", "content": given},)
    if all("role" not in item and str(item.get("type", "")).startswith("input_") for item in given):
        parts = validated_part(_PARTS, given, "input")
        return ({"role": "user", "content": _parts(parts)},)
    items = []
    for i, item in enumerate(given):
        typed = {"type": "message", **item} if "role" in item else item
        items.append(validated_part(_ITEM, typed, f"input[{i}]"))
    return tuple(_turns(items))


def _turns(items: Iterable[Any]) -> list[Message]:
    messages: list[Message] = []
    reasoning: str | None = None
    for i, item in enumerate(items):
        if isinstance(item, InputReasoning):
            reasoning = "".join(part.text for part in item.content or ())
        elif isinstance(item, InputMessage):
            content = item.content if isinstance(item.content, str) else _parts(item.content)
            messages.append({"role": item.role, "content": content})
        elif isinstance(item, InputFunctionCall):
            json_object(item.arguments, f"input[{i}].arguments")
            call = {
                "id": item.call_id,
                "type": "function",
                "function": {"name": item.name, "arguments": item.arguments},
            }
            if not (messages and messages[-1]["role"] == "assistant"):
                messages.append({"role": "assistant"})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif isinstance(item, InputFunctionOutput):
            output = (
                item.output if isinstance(item.output, str) else "".join(part.text for part in item.output)
            )
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": output})
        if reasoning and messages and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning_content"], reasoning = reasoning, None
    return messages


def _parts(parts: Iterable[Any]) -> list[dict[str, Any]]:
    values = [part.model_dump(exclude_none=True) for part in parts]
    return [{"type": "text", "text": v["refusal"]} if v["type"] == "refusal" else v for v in values]


def _instructed(instructions: str, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Instructions come first.

    Templates take one system message, so one that is there already is joined to them.
    """
    first = messages[0] if messages else None
    if first is None or first["role"] not in ("system", "developer"):
        return ({"role": "system", "content": instructions}, *messages)
    content = first["content"]
    if not isinstance(content, str):
        if any(part["type"] == "input_image" for part in content):
            raise BadRequest("input[0].content: a system message takes text only", param="input[0].content")
        content = "".join(part["text"] for part in content)
    return ({"role": "system", "content": f"{instructions}\n\n{content}"}, *messages[1:])
