"""From the command line and the environment to settings, or to errors that name the setting and a remedy."""

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from hf_transformers_backend.settings.access import SECRETS, check_tokens
from hf_transformers_backend.settings.declared import ENV_PREFIX, Settings, env_of, flag_of
from hf_transformers_backend.settings.kinds import SettingsError
from hf_transformers_backend.settings.models import check_forced_defaults

PROGRAM = "flexserv-backend"


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
        if bool in (field.annotation, *get_args(field.annotation)):
            parser.add_argument(flag_of(name), action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            parser.add_argument(flag_of(name), metavar=_metavar(field), default=None, help=text)
    return parser


def _metavar(field: FieldInfo) -> str:
    choices = _choices(field)
    if choices:
        return "|".join(choices)
    kinds = {get_origin(kind) or kind for kind in (field.annotation, *get_args(field.annotation))}
    words = {int: "N", float: "NUMBER", dict: "JSON"}
    return next((word for kind, word in words.items() if kind in kinds), "VALUE")


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
    check_tokens(settings)
    check_forced_defaults(settings)
    if settings.state_dir is not None and not settings.state_dir.is_dir():
        raise SettingsError(
            f"--state-dir: {settings.state_dir} is not a folder; create it or leave the setting out"
        )
