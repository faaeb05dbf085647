"""What the request schemas share: the strict body, the types of fields, what every text route takes."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    ValidationError,
    WrapValidator,
)
from pydantic_core import InitErrorDetails

T = TypeVar("T")


class Body(BaseModel):
    """Strict types, finite numbers; unknown keys are dropped here (and refused before, if so configured)."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


Items = Annotated[list[T], Field(fail_fast=True)]
Named = Annotated[dict[str, T], Field(fail_fast=True)]
"""Looked at as far as the first fault: a client that sends a million must not be told a million."""


SLICE = 1000
"""Small items: some milliseconds' work."""


def _in_slices(value: Any, validate: Callable[[Any], list[Any]]) -> list[Any]:
    """What `validate` makes of a long list, a slice at a time.

    Pydantic holds up every other thread, and so the health of the process, until it is through.
    """
    if not isinstance(value, list) or len(value) <= SLICE:
        return validate(value)
    done: list[Any] = []
    for begin in range(0, len(value), SLICE):
        try:
            done += validate(value[begin : begin + SLICE])
        except ValidationError as error:
            raise _moved(error, begin) from None
    return done


def _moved(error: ValidationError, by: int) -> ValidationError:
    """The error of a slice that begins there, with the places in the whole list."""
    faults = [
        cast(InitErrorDetails, {**fault, "loc": (cast(int, fault["loc"][0]) + by, *fault["loc"][1:])})
        for fault in error.errors(include_url=False)
    ]
    return ValidationError.from_exception_data(error.title, faults)


InSlices = WrapValidator(_in_slices)
"""For a list of objects without an upper bound. It goes last, after the bounds of the list."""


def _read_flag(value: object) -> object:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


Flag = Annotated[bool, BeforeValidator(_read_flag, json_schema_input_type=bool | Literal["true", "false"])]
"""A boolean, or the word "true" or "false"."""


def _is_flag(value: object) -> object:
    # Python has 0 == False and 1 == True, JSON has not.
    if value is not None and not isinstance(value, bool):
        raise ValueError("must be a boolean")
    return value


def _is_number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


OnlyFalse = Annotated[Literal[False], BeforeValidator(_is_flag)]
OnlyZero = Annotated[Literal[0], BeforeValidator(_is_number)]
OnlyOne = Annotated[Literal[1], BeforeValidator(_is_number)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
TokenLimit = Annotated[int, Field(ge=1)]
StopList = Annotated[Items[Annotated[str, Field(min_length=1)]], Field(max_length=16)]
Stop = Annotated[str, Field(min_length=1)] | StopList
TokenId = Annotated[int, Field(ge=0)]


def _meant(value: object) -> str | None:
    """Which of the four forms of a prompt this is: its first item tells."""
    if isinstance(value, str):
        return "text"
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    if isinstance(first, list):
        return "lists of ids"
    return "ids" if isinstance(first, int) and not isinstance(first, bool) else "texts"


OneOfFourForms = Discriminator(
    _meant,
    custom_error_type="no_form",
    custom_error_message="must be a text, a list of texts, a list of token ids, or a list of such lists",
)
"""Of `text`, `texts`, `ids` and `lists of ids`. Only the one that is meant is looked at."""
TemplateKwargs = Named[JsonValue]


class TextPart(Body):
    type: Literal["text", "input_text", "output_text"]
    text: str


class RefusalPart(Body):
    type: Literal["refusal"]
    refusal: str


class ImageUrl(Body):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class ImagePart(Body):
    type: Literal["image_url"]
    image_url: ImageUrl


class InputImagePart(Body):
    type: Literal["input_image"]
    image_url: str
    detail: Literal["auto", "low", "high", "original"] | None = None


class CalledFunction(Body):
    name: Annotated[str, Field(min_length=1)]
    arguments: str


class OfferedFunction(Body):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: Named[JsonValue] | None = None
    strict: bool | None = None


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TextFormat(Body):
    type: Literal["text"]


class Generating(Body):
    """What every text route takes."""

    model: Annotated[str, Field(min_length=1)] | None = None
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    seed: Seed | None = None
    generation_config: str | None = Field(
        None, description="JSON text of a transformers GenerationConfig; a 400 names the keys that are taken."
    )
    user: str | None = None
    metadata: Named[JsonValue] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None


def declared_fields(schema: type[BaseModel]) -> frozenset[str]:
    """The keys that a body may have."""
    return frozenset(schema.model_fields)
