"""Understand the body field `generation_config`."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter
from transformers import GenerationConfig

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.validation import json_object, validated_part
from hf_transformers_backend.schemas.base import declared_fields
from hf_transformers_backend.schemas.generation_config import GenerationConfigField

_FIELD = "generation_config"
_SCHEMA = TypeAdapter(GenerationConfigField)
_TAKEN = declared_fields(GenerationConfigField)
_OF_NO_EFFECT = frozenset(
    {"transformers_version", "_from_model_config", "_commit_hash", "max_length", "use_cache"}
    | {"return_dict_in_generate", "output_attentions", "output_hidden_states", "output_scores"}
    | {"output_logits", "disable_compile", "num_assistant_tokens", "num_assistant_tokens_schedule"}
    | {"assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind", "target_lookbehind"}
)
"""Where a config came from, what `generate` returns beside tokens, and what is decided here whoever asks, or
is of an assistant that there is not."""
_SOUND = frozenset(
    {"do_sample", "max_new_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty"}
)
"""Each in its range they go together, and with every model."""
_USUAL = GenerationConfig._get_default_generation_params()
_WITH_TOKENS = (
    *sorted(name for name in _TAKEN if name.endswith("token_id")),
    *("suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias"),
)
_MOST_LETTERS = 64


def generation_config_of(text: str | None) -> dict[str, Any] | None:
    """What the JSON in the field asks for. Raises BadRequest naming the key."""
    if text is None:
        return None
    asked = _wishes(json_object(text, _FIELD))
    for name in asked:
        if name not in _TAKEN:
            where = f"{_FIELD}.{name[:_MOST_LETTERS]}"
            raise BadRequest(
                f"{where}: is not among what a request may set; these are: {', '.join(sorted(_TAKEN))}",
                param=where,
            )
    return validated_part(_SCHEMA, asked, _FIELD).model_dump(mode="json", exclude_none=True)


def may_not_fit(values: Mapping[str, Any] | None) -> bool:
    """Whether only `generate` can tell that a model generates with these values together."""
    return not set(values or ()) <= _SOUND


def tokens_in(values: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """(where, token ids) for each key of an understood config that has some; -1 is none."""
    for name in _WITH_TOKENS:
        if (value := values.get(name)) is not None:
            words = [word for word, _ in value] if name == "sequence_bias" else value
            yield f"{_FIELD}.{name}", [token for token in _flat(words) if token != -1]


def _wishes(values: Mapping[str, Any]) -> dict[str, Any]:
    """What asks for something: a client may send a whole config, with its library's defaults."""
    return {
        name: value
        for name, value in values.items()
        if value is not None
        and name not in _OF_NO_EFFECT
        and (name in _TAKEN or not (value is False or value == _USUAL.get(name)))
    }


def _flat(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value
