"""No setting without a test that shows its effect; each one reaches the program as flag and as variable."""

import ast
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hf_transformers_backend.settings import Settings, env_of, flag_of, parse_settings

from tests.support.flag_effects import EFFECTS

ROOT = Path(__file__).resolve().parents[3]
GIVEN = {
    "attn_implementation": "sdpa",
    "cb_use_cuda_graph": "true",
    "chat_template_kwargs": '{"a": [1, {"b": null}], "é": "x"}',
    "default_embedding_model": "org/encoder",
    "default_model": "org/chat",
    "device": "cuda:3",
    "dtype": "float16",
    "host": "::1",
    "image_hosts": "off",
    "log_format": "json",
    "log_level": "error",
    "on_demand": "off",
    "oom_eviction": "all",
    "quantization": "bnb-8bit",
    "reasoning": "off",
}
"""A value other than the default, where it is not simply another number or the opposite."""


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FLEXSERV_"):
            monkeypatch.delenv(name)


@cache
def source_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@cache
def names_in(file: str) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.parse(source_of(file)).body if isinstance(node, functions))


def test_every_setting_has_a_test_that_shows_its_effect() -> None:
    fields = Settings.model_fields.keys()
    assert fields - EFFECTS.keys() == set(), "add these settings to tests/support/flag_effects.py"
    assert EFFECTS.keys() - fields == set(), "these are no settings any more"


@pytest.mark.parametrize("name", EFFECTS)
def test_the_test_exists_and_names_the_setting(name: str) -> None:
    file, _, function = EFFECTS[name].partition("::")
    assert function in names_in(file), f"{file} has no test {function}"
    spellings = (f'{flag_of(name)}"', env_of(name), f"{name}=", f'"{name}"', *POOL_FIELDS.get(name, ()))
    assert any(spelling in source_of(file) for spelling in spellings), f"{file} does not name {name}"


POOL_FIELDS = {"cb_use_cuda_graph": ("cuda_graphs=",)}
"""Where a unit's own tests know the setting by the name that it has there."""


def other_than_default(name: str, tmp_path: Path) -> str:
    field = Settings.model_fields[name]
    if name in GIVEN:
        return GIVEN[name]
    if name.endswith("_file"):
        (tmp_path / name).write_text("token")
        return str(tmp_path / name)
    if name == "state_dir":
        return str(tmp_path)
    if isinstance(field.default, bool):
        return str(not field.default).lower()
    if field.default is None:
        return "0.5" if name.endswith("percent") else "77"
    return str(int(field.default) - 1 if field.default > 1 else 1)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_can_be_given_as_flag_and_as_variable(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = other_than_default(name, tmp_path)
    with_it = ["--default-model", "org/a", "--default-embedding-model", "org/b"] if "force" in name else []
    switch = {"true": [flag_of(name)], "false": [flag_of(name).replace("--", "--no-", 1)]}
    by_flag = parse_settings([*with_it, *switch.get(value, [flag_of(name), value])])
    monkeypatch.setenv(env_of(name), value)
    by_variable = parse_settings(with_it)

    def shown(settings: Settings) -> Any:
        found = getattr(settings, name)
        return found.get_secret_value() if hasattr(found, "get_secret_value") else found

    assert shown(by_flag) == shown(by_variable) != shown(Settings.model_construct())
