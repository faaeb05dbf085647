"""The kinds of value that settings have."""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, JsonValue, SecretStr
from pydantic_settings import NoDecode

OnDemandPolicy = Literal["any", "declared", "off"]
EvictionPolicy = Literal["lru", "all"]
ImageHosts = Literal["any", "public", "off"]
Quantization = Literal["bnb-4bit", "bnb-8bit"]
DTypeName = Literal["auto", "float32", "float16", "bfloat16", "float64"]
ReasoningMode = Literal["auto", "on", "off"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["text", "json"]

LONGEST_SECONDS = 31_536_000
"""A year: the most that any time may be. What is meant to be for ever has a value of its own, mostly 0."""


class SettingsError(Exception):
    """A setting cannot be used; the message names it and says what to write instead."""


def _none_if_word(value: object) -> object:
    """The word `none` means "not set" for every setting that has no default."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "none") else value


NONE_WORD = BeforeValidator(_none_if_word)
OptionalText = Annotated[str | None, NONE_WORD]


def _json_read(value: object) -> object:
    """Text is read as JSON here, so that a fault in it is reported like any other."""
    value = _none_if_word(value)
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


OptionalJsonObject = Annotated[dict[str, JsonValue] | None, NoDecode, BeforeValidator(_json_read)]


def _trimmed_token(value: object) -> object:
    """Unlike other settings an empty token is kept, to be refused: it must not open the doors."""
    text = value.strip() if isinstance(value, str) else value
    return None if isinstance(text, str) and text.lower() == "none" else text


OptionalToken = Annotated[SecretStr | None, BeforeValidator(_trimmed_token)]
