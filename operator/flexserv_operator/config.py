"""The operator's settings: each declared once, read from a flag or a FLEXSERV_OPERATOR_* variable (the
flag wins)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from flexserv_operator.errors import BadSettings

PREFIX = "FLEXSERV_OPERATOR_"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class Config(BaseSettings):
    """Keeps FlexServModels true on the backend pods of one namespace."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        cli_prog_name="flexserv-operator",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        env_ignore_empty=True,
    )

    namespace: str = Field(
        description="the namespace to work in", min_length=1, max_length=63, pattern=DNS_LABEL
    )
    backend_service: str = Field(
        description="name of the Service whose pods are the backend",
        min_length=1,
        max_length=63,
        pattern=DNS_LABEL,
    )
    adopt_unreferenced: bool = Field(
        True,
        description="also handle FlexServModels without spec.backendRef; on one operator per namespace, of"
        " several the first keeps them",
    )
    shared_cache: bool = Field(
        False,
        description="the backend's pods share one cache of files: one fetches a model first, the others wait",
    )
    admin_token_file: Path | None = Field(
        None, description="file with the backend's admin token, read again for every call"
    )
    tick_seconds: float = Field(
        10,
        gt=0,
        le=3600,
        description="seconds after which every pod is looked at again although nothing happened",
    )
    poll_timeout_seconds: float = Field(
        5, gt=0, le=60, description="seconds that one call to a backend pod may take"
    )
    health_port: int = Field(8080, ge=1, le=65535, description="port of /healthz")
    metrics_port: int = Field(9090, ge=1, le=65535, description="port of /metrics")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="the least that is logged"
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="form of the log: text, or json with one object per line"
    )


def read_config(arguments: Sequence[str]) -> Config:
    """The settings of this process. Raises BadSettings that names every wrong one; --help and unknown
    flags exit."""
    try:
        config = Config(_cli_parse_args=list(arguments))  # type: ignore[call-arg]
    except ValidationError as error:
        raise BadSettings(
            "\n".join(_explain(problem["loc"], problem["msg"]) for problem in error.errors())
        ) from None
    token = config.admin_token_file
    if token is not None and not os.access(token, os.R_OK):
        raise BadSettings(
            _explain(("admin_token_file",), f"cannot read {token}; mount the Secret there, or unset it")
        )
    return config


def _explain(location: tuple[int | str, ...], problem: str) -> str:
    field = str(location[0]).replace("-", "_")
    what = Config.model_fields[field].description if field in Config.model_fields else "unknown setting"
    return f"--{field.replace('_', '-')} ({PREFIX}{field.upper()}: {what}): {problem}"
