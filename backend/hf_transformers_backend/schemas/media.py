"""The bodies of embeddings and transcriptions."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, Tag

from hf_transformers_backend.schemas.base import (
    Body,
    Items,
    OneOfFourForms,
    TokenId,
)

MOST_INPUTS = 2048
_Text = Annotated[str, Field(min_length=1)]
_Ids = Annotated[Items[TokenId], Field(min_length=1)]


class EmbeddingsRequest(Body):
    """POST /v1/embeddings"""

    model: Annotated[str, Field(min_length=1)] | None = None
    input: Annotated[
        Annotated[_Text, Tag("text")]
        | Annotated[Items[_Text], Field(min_length=1, max_length=MOST_INPUTS), Tag("texts")]
        | Annotated[_Ids, Tag("ids")]
        | Annotated[Items[_Ids], Field(min_length=1, max_length=MOST_INPUTS), Tag("lists of ids")],
        OneOfFourForms,
    ]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


def _read_word(value: object) -> object:
    """Forms have several words for it."""
    return {"False": "false", "0": "false"}.get(value, value) if isinstance(value, str) else value


class TranscriptionRequest(Body):
    """POST /v1/audio/transcriptions, the fields beside `file`.

    A form has only text, so types are read from it.
    """

    model_config = ConfigDict(strict=False, extra="ignore", allow_inf_nan=False)

    model: Annotated[str, Field(min_length=1)] | None = None
    language: Annotated[str, Field(min_length=2)] | None = None
    prompt: str | None = None
    response_format: Literal["json", "text", "verbose_json", "srt", "vtt"] | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    stream: Annotated[Literal["false"], BeforeValidator(_read_word)] | None = None
    timestamp_granularities: Items[Literal["segment"]] | None = None
    include: Annotated[Items[str], Field(max_length=0)] | None = None
    chunking_strategy: Literal["auto"] | None = None
