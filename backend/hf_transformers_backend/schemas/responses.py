"""The body of the responses API, and the items of its input."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue

from hf_transformers_backend.schemas.base import (
    Body,
    Flag,
    Generating,
    InputImagePart,
    InSlices,
    Items,
    Named,
    OnlyFalse,
    OnlyZero,
    RefusalPart,
    StreamOptions,
    TemplateKwargs,
    TextFormat,
    TextPart,
    TokenLimit,
)

ResponsePart = Annotated[TextPart | RefusalPart | InputImagePart, Field(discriminator="type")]


class ResponseText(Body):
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = None


class ResponseReasoning(Body):
    effort: str | None = None
    summary: str | None = None


class ResponseTool(Body):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    type: Literal["function"]
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: Named[JsonValue] | None = None
    strict: bool | None = None


class ResponsesRequest(Generating):
    """POST /v1/responses"""

    input: (
        Annotated[str, Field(min_length=1)]
        | Annotated[Items[Named[JsonValue]], Field(min_length=1), InSlices]
    )
    instructions: str | None = None
    max_output_tokens: TokenLimit | None = None
    tools: Annotated[Items[ResponseTool], InSlices] | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    text: ResponseText | None = None
    reasoning: ResponseReasoning | None = None
    truncation: Literal["disabled"] | None = None
    include: Items[Literal["reasoning.encrypted_content"]] | None = None
    stream_options: StreamOptions | None = None
    chat_template_kwargs: TemplateKwargs | None = None
    enable_thinking: Flag | None = None
    top_logprobs: OnlyZero | None = None
    background: OnlyFalse | None = None
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None
    max_tool_calls: None = None
    context_management: None = None
    moderation: None = None


class InputMessage(Body):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[Items[ResponsePart], InSlices]


class InputFunctionCall(Body):
    type: Literal["function_call"]
    call_id: str
    name: Annotated[str, Field(min_length=1)]
    arguments: str


class InputFunctionOutput(Body):
    type: Literal["function_call_output"]
    call_id: str
    output: str | Annotated[Items[TextPart], InSlices]


class ReasoningText(Body):
    text: str


class InputReasoning(Body):
    type: Literal["reasoning"]
    content: Annotated[Items[ReasoningText], InSlices] | None = None


InputItem = Annotated[
    InputMessage | InputFunctionCall | InputFunctionOutput | InputReasoning, Field(discriminator="type")
]
