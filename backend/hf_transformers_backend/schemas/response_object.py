"""What the responses API answers: the response, its items, its events."""

from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from hf_transformers_backend.schemas.answers import Answer

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(Answer):
    type: Literal["output_text"]
    text: str
    annotations: list[JsonValue]
    logprobs: list[JsonValue]


class ReasoningPart(Answer):
    type: Literal["reasoning_text"]
    text: str


class MessageOutput(Answer):
    """What the model says to the user."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class ReasoningOutput(Answer):
    """What the model thought before."""

    id: str
    type: Literal["reasoning"]
    summary: list[JsonValue]
    content: list[ReasoningPart]
    status: ItemStatus


class FunctionCallOutput(Answer):
    """A function that the model wants to have called; `arguments` is the text of a JSON object."""

    id: str
    call_id: str
    type: Literal["function_call"]
    name: str
    arguments: str
    status: ItemStatus


OutputItemAnswer = Annotated[
    MessageOutput | ReasoningOutput | FunctionCallOutput, Field(discriminator="type")
]


class InputTokensDetails(Answer):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(Answer):
    reasoning_tokens: int


class ResponseUsage(Answer):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseProblem(Answer):
    code: str
    message: str


class IncompleteDetails(Answer):
    reason: Literal["max_output_tokens"]


class ResponseObject(Answer):
    """A response, as it stands; it is not stored."""

    id: str
    object: Literal["response"]
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseProblem | None
    incomplete_details: IncompleteDetails | None
    output: list[OutputItemAnswer]
    usage: ResponseUsage | None
    background: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, JsonValue]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, JsonValue]
    store: Literal[False]
    temperature: float | None
    text: dict[str, JsonValue]
    tool_choice: str
    tools: list[dict[str, JsonValue]]
    top_p: float | None
    truncation: Literal["disabled"]
    user: str | None


class ResponseEvent(Answer):
    """One event of a streamed response; which of the fields it has depends on its type."""

    type: str
    sequence_number: int
    response: ResponseObject | None = None
    item: OutputItemAnswer | None = None
    part: Annotated[OutputText | ReasoningPart, Field(discriminator="type")] | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    delta: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    logprobs: list[Any] | None = None
