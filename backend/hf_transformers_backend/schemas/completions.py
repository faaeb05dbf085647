"""The bodies of chat completions and text completions."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, Tag

from hf_transformers_backend.schemas.base import (
    Body,
    CalledFunction,
    Flag,
    Generating,
    ImagePart,
    InSlices,
    Items,
    Named,
    OfferedFunction,
    OneOfFourForms,
    OnlyFalse,
    OnlyOne,
    OnlyZero,
    Penalty,
    RefusalPart,
    Stop,
    StreamOptions,
    TemplateKwargs,
    TextFormat,
    TextPart,
    TokenId,
    TokenLimit,
)

ChatPart = Annotated[TextPart | RefusalPart | ImagePart, Field(discriminator="type")]


class ChatToolCall(Body):
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[Items[ChatPart], InSlices] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[Items[ChatToolCall], InSlices] | None = None
    tool_call_id: str | None = None


class ChatTool(Body):
    type: Literal["function"]
    function: OfferedFunction


class Penalizing(Generating):
    """What chat and text completions share."""

    stop: Stop | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Named[Annotated[float, Field(ge=-100, le=100)]] | None = None
    stream_options: StreamOptions | None = None
    max_tokens: TokenLimit | None = None
    n: OnlyOne | None = None


class ChatRequest(Penalizing):
    """POST /v1/chat/completions"""

    messages: Annotated[Items[ChatMessage], Field(min_length=1), InSlices]
    max_completion_tokens: TokenLimit | None = None
    tools: Annotated[Items[ChatTool], InSlices] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextFormat | None = None
    logprobs: OnlyFalse | None = None
    top_logprobs: OnlyZero | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: TemplateKwargs | None = None
    enable_thinking: Flag | None = None
    prediction: JsonValue = None
    verbosity: Literal["medium"] | None = None
    modalities: Items[Literal["text"]] | None = None
    audio: None = None
    functions: None = None
    function_call: None = None
    web_search_options: None = None
    moderation: None = None


class CompletionRequest(Penalizing):
    """POST /v1/completions"""

    prompt: Annotated[
        Annotated[str, Field(min_length=1), Tag("text")]
        | Annotated[Items[str], Tag("texts")]
        | Annotated[Items[TokenId], Tag("ids")]
        | Annotated[Items[Items[TokenId]], Tag("lists of ids")],
        OneOfFourForms,
    ]
    echo: bool | None = None
    best_of: OnlyOne | None = None
    logprobs: None = None
    suffix: str | None = None
