"""How answers are generated when a request does not say."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from hf_transformers_backend.settings.kinds import NONE_WORD, OptionalJsonObject, ReasoningMode


class GenerationSettings(BaseSettings):
    """Defaults of generation."""

    default_max_tokens: Annotated[int | None, NONE_WORD] = Field(
        None,
        ge=1,
        description="Tokens to generate when a request sets no limit, at most what the context leaves; "
        "none = 1024, or what the model's own configuration says if that is more.",
    )
    default_seed: Annotated[int | None, NONE_WORD] = Field(
        None,
        ge=0,
        le=2**32 - 1,
        description="Seed of the sampling for requests that set none: the same request is then answered the "
        "same way. With --continuous-batching it starts the one stream of numbers that all requests share.",
    )
    compile: bool = Field(
        False,
        description="Generate with torch.compile and a cache of fixed size: on GPUs faster once it is warm. "
        "A CPU gets the cache only. Not for models that share their steps by --continuous-batching.",
    )
    reasoning: ReasoningMode = Field(
        "auto",
        description="on, off: enable_thinking true or false for requests that do not say; auto: what the "
        "model's chat template does. Off also leaves the text of a model that thinks all the same as it is, "
        "where it would go to reasoning_content.",
    )
    chat_template_kwargs: OptionalJsonObject = Field(
        None,
        description="Variables for every chat template, as a JSON object. Those of the model's own load, "
        "then those of the request win.",
    )
