"""Who may ask, and what a request may bring in."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from hf_transformers_backend.settings.kinds import (
    NONE_WORD,
    ImageHosts,
    OnDemandPolicy,
    OptionalToken,
    SettingsError,
)

SECRETS = ("flexserv_token", "admin_token")


class AccessSettings(BaseSettings):
    """Tokens and policies."""

    flexserv_token: OptionalToken = Field(None, description="Bearer token that every /v1 request needs.")
    flexserv_token_file: Annotated[Path | None, NONE_WORD] = Field(
        None, description="File that holds the --flexserv-token; read again when it changes."
    )
    admin_token: OptionalToken = Field(
        None, description="Bearer token for load, unload, declared, synced and reset; good for all else too."
    )
    admin_token_file: Annotated[Path | None, NONE_WORD] = Field(
        None, description="File that holds the --admin-token; read again when it changes."
    )
    on_demand: OnDemandPolicy = Field(
        "any", description="Models that a mere request may load: any, declared (listed by the operator), off."
    )
    image_hosts: ImageHosts = Field(
        "public",
        description="Where images of requests may be fetched from: public (hosts on the public internet), "
        "any (private addresses and this machine too), off (images come inside of the request only).",
    )
    block_on_unexpected_fields: bool = Field(
        False, description="Refuse unknown request fields with a 400 instead of dropping them."
    )


def check_tokens(settings: AccessSettings) -> None:
    """Raises SettingsError for a token given twice, an empty one, or one that no header can carry."""
    for name in SECRETS:
        file: Path | None = getattr(settings, f"{name}_file")
        token: SecretStr | None = getattr(settings, name)
        flag = "--" + name.replace("_", "-")
        if token is not None and file is not None:
            raise SettingsError(f"{flag} and {flag}-file are both set; keep one of them")
        if token is not None:
            _check_token(flag, token.get_secret_value(), "give one, or leave the flag out")
        if file is None:
            continue
        try:
            text = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise SettingsError(f"{flag}-file: cannot read {file}: {reason}; name a readable file") from None
        _check_token(f"{flag}-file: {file}", text, "write the token into it")


def _check_token(source: str, token: str, remedy: str) -> None:
    if not token:
        raise SettingsError(f"{source} is empty; {remedy}")
    if not (token.isascii() and token.isprintable()):
        raise SettingsError(f"{source}: only printable ASCII characters on one line fit into a header")
