"""Every setting of the backend, declared once: name, type, default, limits and help.

The command line (`--kebab-case`), the environment (`FLEXSERV_UPPER_SNAKE`) and the reference table are
derived from the fields below. The command line wins over the environment. Imports nothing heavy: `--help`
must be instant.
"""

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

ENV_PREFIX = "FLEXSERV_"
PROGRAM = "flexserv-backend"

OnDemandPolicy = Literal["any", "declared", "off"]
Quantization = Literal["bnb-4bit", "bnb-8bit"]
DTypeName = Literal["auto", "float32", "float16", "bfloat16", "float64"]
LogLevel = Literal["debug", "info", "warning", "error", "critical"]


SECRETS = ("flexserv_token", "admin_token")


class SettingsError(Exception):
    """A setting cannot be used; the message names it and says what to write instead."""


def _none_if_word(value: object) -> object:
    """The word `none` means "not set" for every setting that has no default."""
    return None if isinstance(value, str) and value.strip().lower() in ("", "none") else value


NONE_WORD = BeforeValidator(_none_if_word)
LONGEST_SECONDS = 31_536_000
"""A year: the most that any time may be. What is meant to be for ever has a value of its own, mostly 0."""
OptionalText = Annotated[str | None, NONE_WORD]


def _trimmed_token(value: object) -> object:
    """Unlike other settings an empty token is kept, to be refused: it must not open the doors."""
    text = value.strip() if isinstance(value, str) else value
    return None if isinstance(text, str) and text.lower() == "none" else text


OptionalToken = Annotated[SecretStr | None, BeforeValidator(_trimmed_token)]


class Settings(BaseSettings):
    """The settings in force. Frozen; secrets are masked in every rendering."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", allow_inf_nan=False
    )

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8001, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    default_model: OptionalText = Field(
        None,
        description="Model that is loaded at start and answers requests that name none (hub id or path).",
    )
    default_embedding_model: OptionalText = Field(
        None,
        description="Encoder that answers embedding requests that name none; the first of them loads it.",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d+)?|mps|xpu(:\d+)?|\d+)$",
        description="Where models are placed: auto, cpu, cuda, cuda:N, mps, or a GPU number.",
    )
    dtype: DTypeName = Field("auto", description="Data type of the weights; auto keeps the checkpoint's own.")
    model_timeout: float = Field(
        86400,
        ge=0,
        le=LONGEST_SECONDS,
        description="Seconds without a request after which a model is unloaded; 0 = never.",
    )
    continuous_batching: bool = Field(
        False,
        description="Let concurrent requests to a text model share its steps; meant for GPUs. A model takes "
        "a pool of memory, and sampling parameters beyond temperature, top_p and top_k are refused.",
    )
    trust_remote_code: bool = Field(False, description="Run the Python code that a model repository ships.")
    attn_implementation: OptionalText = Field(
        None,
        pattern=r"^(eager|sdpa|flash_attention_2|flash_attention_3|flex_attention|[\w.-]+/[\w.@:-]+)$",
        description="Attention: eager, sdpa, flash_attention_2 or _3, flex_attention, or a hub kernel.",
    )
    quantization: Annotated[Quantization | None, NONE_WORD] = Field(
        None, description="Quantize while loading: bnb-4bit or bnb-8bit."
    )
    default_max_tokens: Annotated[int | None, NONE_WORD] = Field(
        None,
        ge=1,
        description="Tokens to generate when a request sets no limit, at most what the context leaves; "
        "none = 1024, or what the model's own configuration says if that is more.",
    )
    block_on_unexpected_fields: bool = Field(
        False, description="Refuse unknown request fields with a 400 instead of dropping them."
    )
    oom_monitor: bool = Field(False, description="Watch memory and evict models when a threshold is reached.")
    oom_ram_threshold: float = Field(
        90.0, ge=0, le=100, description="RAM use in percent (0-100) at which the monitor evicts."
    )
    oom_vram_threshold: float = Field(
        90.0, ge=0, le=100, description="GPU memory use in percent (0-100) at which the monitor evicts."
    )
    oom_check_interval: float = Field(
        30, gt=0, le=LONGEST_SECONDS, description="Seconds between two looks of the monitor."
    )
    log_level: LogLevel = Field("info", description="Least severe message that is logged.")
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
    load_wait: float = Field(
        300,
        ge=0,
        le=LONGEST_SECONDS,
        description="Seconds that a request waits for its model before it gets 503 model_loading.",
    )
    max_queue: int = Field(64, ge=0, description="Requests that may wait for one model; more get 429.")
    shutdown_timeout: float = Field(
        30, ge=0, le=LONGEST_SECONDS, description="Seconds that running requests get to finish after SIGTERM."
    )
    max_request_bytes: int = Field(
        33554432, ge=1024, description="Largest request body in bytes; larger gets 413."
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


def flag_of(name: str) -> str:
    """`model_timeout` → `--model-timeout`."""
    return "--" + name.replace("_", "-")


def env_of(name: str) -> str:
    """`model_timeout` → `FLEXSERV_MODEL_TIMEOUT`."""
    return ENV_PREFIX + name.upper()


def parse_settings(argv: Sequence[str]) -> Settings:
    """Settings from the command line over the environment.

    Exits with 0 after `--help`; raises SettingsError, whose message is one line per fault.
    """
    given = {name: value for name, value in vars(_parser().parse_args(argv)).items() if value is not None}
    return load_settings(**given)


def load_settings(**given: Any) -> Settings:
    """Settings from keyword values over the environment; raises SettingsError."""
    try:
        settings = Settings(**given)
    except ValidationError as error:
        raise SettingsError("\n".join(_explain(fault, given) for fault in error.errors())) from None
    _check_together(settings)
    return settings


def settings_or_exit(argv: Sequence[str]) -> Settings:
    """Like `parse_settings`, but a fault is printed to stderr and ends the process with code 2."""
    try:
        return parse_settings(argv)
    except SettingsError as error:
        print("\n".join(f"{PROGRAM}: error: {line}" for line in str(error).splitlines()), file=sys.stderr)
        sys.exit(2)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError(f"{message}; see --help")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = unknown[0].partition("=")[0]
            near = difflib.get_close_matches(word, list(self._option_string_actions), n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            kind = "flag" if word.startswith("-") else "argument"
            raise SettingsError(f"unknown {kind} {word}; {hint}see --help for all flags")
        return parsed


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Serve transformers models behind the OpenAI API. "
        f"Each flag can be set as {ENV_PREFIX}<FLAG> in the environment; the flag wins.",
    )
    for name, field in Settings.model_fields.items():
        text = f"{field.description} [{_default_text(field)}]".replace("%", "%%")
        if field.annotation is bool:
            parser.add_argument(flag_of(name), action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(flag_of(name), metavar=_metavar(field), default=None, help=text)
    return parser


def _metavar(field: FieldInfo) -> str:
    choices = _choices(field)
    if choices:
        return "|".join(choices)
    return "N" if field.annotation is int else "NUMBER" if field.annotation is float else "VALUE"


def _choices(field: FieldInfo) -> tuple[str, ...]:
    """The words of a Literal, looked up through an optional."""
    for candidate in (field.annotation, *get_args(field.annotation)):
        words = get_args(candidate)
        if words and all(isinstance(word, str) for word in words):
            return words
    return ()


def _default_text(field: FieldInfo) -> str:
    if field.default is None:
        return "none"
    return str(field.default).lower() if isinstance(field.default, bool) else str(field.default)


def _explain(fault: ErrorDetails, given: dict[str, Any]) -> str:
    """One line: the setting under the name by which it was given, what is wrong, and what it takes."""
    name = str(fault["loc"][0]) if fault["loc"] else "settings"
    field = Settings.model_fields.get(name)
    if field is None:
        return f"{name}: unknown setting; see --help"
    env = env_of(name)
    source = flag_of(name) if name in given else env
    value = given.get(name, os.environ.get(env))
    shown = "" if name in SECRETS else f" {value!r}"
    line = f"{source}: cannot use{shown}: {fault['msg'].lower()}. {field.description}"
    if name not in given and isinstance(value, str) and value.startswith("tcp://"):
        line += " Kubernetes sets this for a Service of that name: set enableServiceLinks: false in the pod."
    return line


def _check_together(settings: Settings) -> None:
    for name in SECRETS:
        file: Path | None = getattr(settings, f"{name}_file")
        token: SecretStr | None = getattr(settings, name)
        flag = flag_of(name)
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
    if settings.state_dir is not None and not settings.state_dir.is_dir():
        raise SettingsError(
            f"--state-dir: {settings.state_dir} is not a folder; create it or leave the setting out"
        )


def _check_token(source: str, token: str, remedy: str) -> None:
    if not token:
        raise SettingsError(f"{source} is empty; {remedy}")
    if not (token.isascii() and token.isprintable()):
        raise SettingsError(f"{source}: only printable ASCII characters on one line fit into a header")
