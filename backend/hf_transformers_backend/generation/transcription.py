"""Understand the form of an audio transcription."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hf_transformers_backend.generation.validation import validated
from hf_transformers_backend.schemas.media import TranscriptionRequest

Format = Literal["json", "text", "verbose_json", "srt", "vtt"]


@dataclass(frozen=True, slots=True)
class TranscriptionAsked:
    """What to do with the sound and in which form to answer."""

    model: str | None
    language: str | None
    prompt: str | None
    temperature: float
    response_format: Format

    @property
    def needs_segments(self) -> bool:
        """Subtitles are made of segments with times."""
        return self.response_format in ("srt", "vtt")

    @property
    def wants_segments(self) -> bool:
        """Whether segments are part of the answer where the model has them."""
        return self.needs_segments or self.response_format == "verbose_json"


def understand_transcription(
    fields: Mapping[str, list[str]], *, block_unexpected: bool = False
) -> TranscriptionAsked:
    """`fields` are the form's text fields, each with all its values. Raises BadRequest naming the field."""
    lists = ("timestamp_granularities", "include")
    body: dict[str, Any] = {}
    for name, values in fields.items():
        plain = name.removesuffix("[]")
        body[plain] = values if plain in lists else values[-1]
    asked = validated(TranscriptionRequest, body, block_unexpected=block_unexpected)
    return TranscriptionAsked(
        model=asked.model,
        language=asked.language.lower() if asked.language else None,
        prompt=asked.prompt or None,
        temperature=asked.temperature or 0.0,
        response_format=asked.response_format or "json",
    )
