"""Speech to text: samples in, text and segments out. Blocking; runs on the model's thread."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import StoppingCriteriaList

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.stream import Cancellation
from hf_transformers_backend.generation.template import tokenizer_of
from hf_transformers_backend.generation.transcription import TranscriptionAsked
from hf_transformers_backend.upstream.served_model import Modality, ServedModel

_WINDOW_SECONDS = 30
"""What Whisper hears at once; longer sound takes its sequential long-form path, which needs time stamps."""
_MOST_LETTERS_PER_TOKEN = 64


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech, in seconds from the start of the sound."""

    start: float
    end: float
    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transcript:
    """`segments` is None where the model has no time stamps.

    `language` is a code, None where it is not known.
    """

    text: str
    seconds: float
    generated_tokens: int
    language: str | None = None
    segments: tuple[Segment, ...] | None = None


def sampling_rate(served: ServedModel) -> int:
    """What the model listens to, in Hz. Raises BadRequest for a model that cannot listen."""
    if served.modality is not Modality.STT:
        raise BadRequest("this model does not transcribe audio", param="model")
    return int(served.processor.feature_extractor.sampling_rate)


def check_transcription(served: ServedModel, asked: TranscriptionAsked) -> None:
    """Refuse what this model cannot do, before any work."""
    if asked.needs_segments and not _has_time_stamps(served):
        raise BadRequest(
            f"response_format: this model gives no time stamps, so {asked.response_format} is not possible; "
            "use json, text or verbose_json",
            param="response_format",
        )
    if asked.language is not None:
        known = getattr(served.model.generation_config, "lang_to_id", None) or {"<|en|>": 0}
        if f"<|{asked.language}|>" not in known:
            codes = ", ".join(sorted(code.strip("<|>") for code in known))
            raise BadRequest(f"language: this model knows {codes}", param="language")
    if asked.prompt is not None and not hasattr(served.processor, "get_prompt_ids"):
        raise BadRequest("prompt: this model takes none", param="prompt")


def prompt_tokens(served: ServedModel, asked: TranscriptionAsked) -> torch.Tensor | None:
    """The words that come before, as the model reads them: of a longer text the end.

    Raises BadRequest for those that mean something else to it.
    """
    if asked.prompt is None:
        return None
    most = served.model.config.max_target_positions // 2 - 1
    text = asked.prompt[-most * _MOST_LETTERS_PER_TOKEN :]
    try:
        tokens: torch.Tensor = served.processor.get_prompt_ids(text, return_tensors="pt")
    except ValueError:
        raise BadRequest(
            "prompt: has a special token of this model, such as <|endoftext|>; leave it out", param="prompt"
        ) from None
    start, words = tokens[:1], tokens[1:]
    return torch.cat([start, words[-(most - 1) :]])


def transcribe(
    served: ServedModel,
    samples: npt.NDArray[np.float32],
    asked: TranscriptionAsked,
    cancellation: Cancellation,
    prompt: torch.Tensor | None = None,
) -> Transcript:
    """The words in mono `samples` at the model's rate, which come after those of `prompt`."""
    model, processor = served.model, served.processor
    rate = sampling_rate(served)
    seconds = len(samples) / rate
    long = seconds > _WINDOW_SECONDS
    stamped = _has_time_stamps(served) and (long or asked.wants_segments)
    inputs = processor(
        samples,
        sampling_rate=rate,
        return_tensors="pt",
        **(
            {"truncation": False, "padding": "longest", "return_attention_mask": True}
            if long and stamped
            else {}
        ),
    )
    inputs = {
        name: value.to(model.device, model.dtype if value.is_floating_point() else value.dtype)
        for name, value in inputs.items()
    }
    options: dict[str, Any] = {"stopping_criteria": StoppingCriteriaList([cancellation])}
    if _is_multilingual(served):
        options["task"] = "transcribe"  # else the model may decide to translate
    if asked.temperature:
        options |= {"do_sample": True, "temperature": asked.temperature}
    if prompt is not None:
        options["prompt_ids"] = prompt.to(model.device)
    if stamped:
        options |= {"return_timestamps": True, "return_segments": True}
    with torch.inference_mode():
        language = asked.language or (
            _detected(served, inputs) if asked.response_format == "verbose_json" else None
        )
        if language and _is_multilingual(served):
            options["language"] = language
        result = model.generate(**inputs, **options)
    sequences = result["sequences"] if isinstance(result, dict) else result
    tokens = sequences[0].tolist()
    text = tokenizer_of(served).decode(tokens, skip_special_tokens=True).strip()
    segments = _segments(served, result["segments"][0]) if isinstance(result, dict) else None
    return Transcript(text, seconds, len(tokens), language, segments)


def _has_time_stamps(served: ServedModel) -> bool:
    tokenizer = tokenizer_of(served)
    token = tokenizer.convert_tokens_to_ids("<|0.00|>")
    known = token is not None and token != tokenizer.unk_token_id
    return known and hasattr(served.model.generation_config, "no_timestamps_token_id")


def _is_multilingual(served: ServedModel) -> bool:
    return bool(getattr(served.model.generation_config, "is_multilingual", False))


def _detected(served: ServedModel, inputs: dict[str, Any]) -> str | None:
    if not _is_multilingual(served) or "input_features" not in inputs:
        return None
    model: Any = served.model
    token = int(model.detect_language(input_features=inputs["input_features"][..., :3000])[0])
    codes = {number: name.strip("<|>") for name, number in model.generation_config.lang_to_id.items()}
    return codes.get(token)


def _segments(served: ServedModel, segments: list[dict[str, Any]]) -> tuple[Segment, ...]:
    tokenizer = tokenizer_of(served)
    return tuple(
        Segment(
            float(segment["start"]),
            float(segment["end"]),
            tokenizer.decode(segment["tokens"], skip_special_tokens=True),
            tuple(segment["tokens"].tolist()),
        )
        for segment in segments
    )
