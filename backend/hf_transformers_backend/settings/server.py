"""Where the server listens, what it takes, how it starts and stops."""

from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from hf_transformers_backend.settings.kinds import LONGEST_SECONDS, NONE_WORD, LogFormat, LogLevel


class ServerSettings(BaseSettings):
    """The process and its port."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8001, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    log_level: LogLevel = Field("info", description="Least severe message that is logged.")
    log_format: LogFormat = Field(
        "text", description="Form of the log: text, or json with one object per line."
    )
    per_core_cpu_metrics: bool = Field(
        True, description="Export CPU use for each logical core; off: one series for all of them."
    )
    enable_cors: bool = Field(
        False,
        description="Let web pages of every origin call the API from a browser (with a token, not with "
        "cookies). Loading and unloading models stays closed to pages of other origins.",
    )
    max_request_bytes: int = Field(
        33554432, ge=1024, description="Largest request body in bytes; larger gets 413."
    )
    shutdown_timeout: float = Field(
        30, ge=0, le=LONGEST_SECONDS, description="Seconds that running requests get to finish after SIGTERM."
    )
    ready_after_sync: bool = Field(
        False, description="Report ready only after the operator said that its models are in."
    )
    startup_timeout: float = Field(
        1800,
        gt=0,
        le=LONGEST_SECONDS,
        description="Seconds after which the backend reports ready even if its models are not in.",
    )
    state_dir: Annotated[Path | None, NONE_WORD] = Field(
        None, description="Folder for the markers that recognize a model whose load killed the process."
    )
