"""The settings of one model: those that shape its weights, and those that can change while it is in use."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.settings import Settings

NO_QUANTIZATION = "none"


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What a load turns into weights; a difference means another model in memory."""

    dtype: str = "auto"
    quantization: str | None = None
    attn_implementation: str | None = None
    trust_remote_code: bool = False

    @classmethod
    def of(cls, settings: Settings, identity: ModelIdentity) -> "LoadSettings":
        """The server's own, for models that ask for nothing else.

        Its quantization is not for encoders, nor for GGUF files, which have their own.
        """
        plain = identity.kind == "serve" and not identity.model_id.endswith(".gguf")
        return cls(
            settings.dtype,
            settings.quantization if plain else None,
            settings.attn_implementation,
            settings.trust_remote_code,
        )

    def updated(self, changes: Mapping[str, Any]) -> "LoadSettings":
        """These settings with the load-time fields of `changes`; other keys are left alone, and so is what is
        null there. The quantization "none" is none, whatever the server's is.
        """
        wanted = {name: value for name, value in _known(self, changes).items() if value is not None}
        if wanted.get("quantization") == NO_QUANTIZATION:
            wanted["quantization"] = None
        return replace(self, **wanted)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """What applies at once to a model in memory. `idle_timeout_seconds` None means the server's, 0 never."""

    owner: str | None = None
    pin: bool = False
    priority: int = 0
    idle_timeout_seconds: float | None = None
    served_name: str | None = None
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)

    def updated(self, changes: Mapping[str, Any]) -> "LiveSettings":
        """These settings with the live fields of `changes`; other keys are left alone."""
        return replace(self, **_known(self, changes))


def asked_for(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The load-time settings that were asked for by name, after `changes`: null takes one back, so that the
    server's own holds again."""
    after = {**before, **{name: changes[name] for name in _LOAD_TIME if name in changes}}
    return {name: value for name, value in after.items() if value is not None}


_LOAD_TIME = tuple(item.name for item in fields(LoadSettings))


def _known(target: LoadSettings | LiveSettings, changes: Mapping[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(target)}
    return {name: value for name, value in changes.items() if name in names}
