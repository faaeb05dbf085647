"""All settings together, and the names under which they can be given."""

from pydantic_settings import BaseSettings, SettingsConfigDict

from hf_transformers_backend.settings.access import AccessSettings
from hf_transformers_backend.settings.batching import BatchingSettings
from hf_transformers_backend.settings.generation import GenerationSettings
from hf_transformers_backend.settings.memory import MemorySettings
from hf_transformers_backend.settings.models import ModelSettings
from hf_transformers_backend.settings.server import ServerSettings

ENV_PREFIX = "FLEXSERV_"


class Settings(
    # Fields are listed from the last to the first of these: in help and tables the server comes first.
    MemorySettings,
    BatchingSettings,
    GenerationSettings,
    ModelSettings,
    AccessSettings,
    ServerSettings,
    BaseSettings,
):
    """The settings in force. Frozen; secrets are masked in every rendering."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", allow_inf_nan=False
    )


def flag_of(name: str) -> str:
    """`model_timeout` → `--model-timeout`."""
    return "--" + name.replace("_", "-")


def env_of(name: str) -> str:
    """`model_timeout` → `FLEXSERV_MODEL_TIMEOUT`."""
    return ENV_PREFIX + name.upper()
