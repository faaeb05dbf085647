"""Which models there are, how they are loaded, and how long they stay."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from hf_transformers_backend.settings.kinds import (
    LONGEST_SECONDS,
    NONE_WORD,
    DTypeName,
    OptionalText,
    Quantization,
    SettingsError,
)

FORCED = ("default_model", "default_embedding_model")


class ModelSettings(BaseSettings):
    """Models and their residency."""

    default_model: OptionalText = Field(
        None,
        description="Model that is loaded at start and answers requests that name none (hub id or path).",
    )
    default_embedding_model: OptionalText = Field(
        None,
        description="Encoder that answers embedding requests that name none; the first of them loads it.",
    )
    force_default_model: bool = Field(
        False,
        description="Serve every text and audio request by the --default-model, whatever model it names; "
        "answers name the model that served.",
    )
    force_default_embedding_model: bool = Field(
        False,
        description="Serve every embedding request by the --default-embedding-model, whatever it names.",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?|mps|xpu(:\d+)?|\d+)$",
        description="Where models are placed: auto, cpu, cuda, cuda:N, mps, or a GPU number.",
    )
    dtype: DTypeName = Field("auto", description="Data type of the weights; auto keeps the checkpoint's own.")
    attn_implementation: OptionalText = Field(
        None,
        pattern=r"^(eager|sdpa|flash_attention_2|flash_attention_3|flex_attention|[\w.-]+/[\w.@:-]+)$",
        description="Attention: eager, sdpa, flash_attention_2 or _3, flex_attention, or a hub kernel.",
    )
    quantization: Annotated[Quantization | None, NONE_WORD] = Field(
        None, description="Quantize while loading: bnb-4bit or bnb-8bit."
    )
    trust_remote_code: bool = Field(False, description="Run the Python code that a model repository ships.")
    model_timeout: float = Field(
        86400,
        ge=0,
        le=LONGEST_SECONDS,
        description="Seconds without a request after which a model is unloaded; 0 = never.",
    )
    load_wait: float = Field(
        300,
        ge=0,
        le=LONGEST_SECONDS,
        description="Seconds that a request waits for its model before it gets 503 model_loading.",
    )
    cache_limit_bytes: Annotated[int | None, NONE_WORD] = Field(
        None,
        ge=0,
        description="Bytes that the cache of downloaded models may take; a load that would exceed them is "
        "refused before its download. none = what the disk has free.",
    )
    max_queue: int = Field(64, ge=0, description="Requests that may wait for one model; more get 429.")


def check_forced_defaults(settings: ModelSettings) -> None:
    """Raises SettingsError where there is no default model to serve every request."""
    for name in FORCED:
        flag = "--" + name.replace("_", "-")
        if getattr(settings, f"force_{name}") and getattr(settings, name) is None:
            forced = flag.replace("--", "--force-")
            raise SettingsError(f"{forced} needs a {flag}; name one, or leave {forced} out")
