"""What the OpenAI routes answer, for the API's description. The tests hold every answer to it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

FinishReason = Literal["stop", "length", "tool_calls"]


class Answer(BaseModel):
    """An answer has the fields that are declared, and no others."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetails(Answer):
    """What went wrong, for people and for programs."""

    message: str = Field(description="What is wrong, and what to do about it.")
    type: Literal[
        "invalid_request_error",
        "authentication_error",
        "permission_error",
        "rate_limit_error",
        "server_error",
    ]
    param: str | None = Field(description="The field or parameter at fault.")
    code: str | None = Field(description="The reason, for programs.")
    needed_bytes: int | None = Field(None, description="Memory that the model takes (insufficient_memory).")
    available_bytes: int | None = Field(None, description="Memory that could be had for it.")
    prompt_tokens: int | None = Field(None, description="Length of a prompt that the context cannot hold.")
    context_tokens: int | None = Field(None, description="What the context can hold.")
    max_loaded_models: int | None = Field(
        None, description="The cap that a load would exceed (insufficient_memory): --max-loaded-models."
    )


class ErrorAnswer(Answer):
    """Every answer from 400 on."""

    error: ErrorDetails


class CompletionTokensDetails(Answer):
    """Of the tokens that were written."""

    reasoning_tokens: int = Field(description="Thinking, which goes to reasoning_content.")


class Usage(Answer):
    """Tokens that were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails | None = None


class FunctionCall(Answer):
    """A function that the model wants to have called; `arguments` is the text of a JSON object."""

    name: str
    arguments: str


class ToolCallAnswer(Answer):
    id: str
    type: Literal["function"]
    function: FunctionCall


class ToolCallDelta(ToolCallAnswer):
    index: int


class AssistantMessage(Answer):
    role: Literal["assistant"]
    content: str | None
    refusal: str | None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallAnswer] | None = None


class ChatChoice(Answer):
    index: int
    message: AssistantMessage
    logprobs: None = None
    finish_reason: FinishReason


class ChatCompletion(Answer):
    """The whole answer of a chat."""

    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Epoch seconds.")
    model: str = Field(description="The name that was asked for.")
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(Answer):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class ChatChunkChoice(Answer):
    index: int
    delta: ChatDelta
    logprobs: None = None
    finish_reason: FinishReason | None


class ChatCompletionChunk(Answer):
    """One event of a streamed chat; the one with the usage has no choices. The last event is `[DONE]`."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


class TextChoice(Answer):
    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReason | None = Field(description="null in a stream, before the end.")


class TextCompletion(Answer):
    """The whole answer of a text completion, or one event of a streamed one. The last event is `[DONE]`."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None = None


class EmbeddingItem(Answer):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str = Field(
        description="A unit vector; with encoding_format base64 its little-endian float32 values."
    )


class EmbeddingsUsage(Answer):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(Answer):
    """The vectors, in the order of the input."""

    object: Literal["list"]
    model: str
    data: list[EmbeddingItem]
    usage: EmbeddingsUsage


class DurationUsage(Answer):
    type: Literal["duration"]
    seconds: float


class TranscriptionAnswer(Answer):
    """What was said (response_format json)."""

    text: str
    usage: DurationUsage


class TranscriptionSegment(Answer):
    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    compression_ratio: float


class VerboseTranscriptionAnswer(Answer):
    """What was said, and when (response_format verbose_json)."""

    task: Literal["transcribe"]
    language: str
    duration: float
    text: str
    usage: DurationUsage
    segments: list[TranscriptionSegment] | None = None


class ModelAnswer(Answer):
    """A model that a client may name."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    status: Literal["loaded", "loading", "unloaded"]


class ModelList(Answer):
    object: Literal["list"]
    data: list[ModelAnswer]
