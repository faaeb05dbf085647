"""Settings: one declaration, two ways to set it, and errors that name the setting and the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hf_transformers_backend.settings import (
    Settings,
    SettingsError,
    load_settings,
    parse_settings,
)

from tests.support.server import PROGRAM


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("FLEXSERV_"):
            monkeypatch.delenv(name)


def test_the_defaults_are_those_of_the_specification() -> None:
    settings = parse_settings([])
    assert settings.model_timeout == 86400
    assert (settings.oom_ram_threshold, settings.oom_vram_threshold, settings.oom_check_interval) == (
        90,
        90,
        30,
    )
    assert (settings.host, settings.port, settings.device, settings.dtype) == (
        "127.0.0.1",
        8001,
        "auto",
        "auto",
    )
    assert not settings.oom_monitor and not settings.trust_remote_code and not settings.continuous_batching
    assert settings.default_model is None and settings.quantization is None


def test_help_names_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    for name, field in Settings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in shown
        assert field.description
    assert "FLEXSERV_" in shown
    assert "[none]" in shown and "[false]" in shown and "[86400]" in shown


def test_the_flag_wins_over_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXSERV_MODEL_TIMEOUT", "5")
    monkeypatch.setenv("FLEXSERV_OOM_MONITOR", "true")
    assert parse_settings([]).model_timeout == 5
    settings = parse_settings(["--model-timeout", "0", "--no-oom-monitor"])
    assert (settings.model_timeout, settings.oom_monitor) == (0, False)


def test_the_word_none_and_an_empty_variable_mean_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXSERV_QUANTIZATION", "none")
    monkeypatch.setenv("FLEXSERV_DEFAULT_MODEL", "")
    monkeypatch.setenv("FLEXSERV_ADMIN_TOKEN", "none")
    settings = parse_settings(["--attn-implementation", "none"])
    assert settings.quantization is settings.default_model is settings.attn_implementation is None
    assert settings.admin_token is None


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--oom-ram-threshold", "120"], ["--oom-ram-threshold", "120", "0-100"]),
        (["--oom-vram-threshold", "-1"], ["--oom-vram-threshold", "0-100"]),
        (["--model-timeout", "-1"], ["--model-timeout", "0 = never"]),
        (["--model-timeout", "inf"], ["--model-timeout", "finite"]),
        (["--oom-check-interval", "0"], ["--oom-check-interval", "greater than 0"]),
        (["--port", "http"], ["--port", "'http'", "integer"]),
        (["--quantization", "int3"], ["--quantization", "bnb-4bit"]),
        (["--device", "gpu"], ["--device", "cuda:N"]),
        (["--on-demand", "never"], ["--on-demand", "declared"]),
        (["--prot", "1"], ["--prot", "did you mean --port?"]),
        (["stray"], ["stray", "--help"]),
        (["--port"], ["--port", "expected one argument"]),
        (["--admin-token-file", "/nonexistent"], ["--admin-token-file", "cannot read", "readable"]),
        (["--state-dir", "/nonexistent"], ["--state-dir", "create it"]),
        (["--default-max-tokens", "0"], ["--default-max-tokens", "'0'", "greater than or equal to 1"]),
        (["--model-timeout", "1e300"], ["--model-timeout", "31536000"]),
        (["--oom-check-interval", "1e300"], ["--oom-check-interval", "31536000"]),
        (["--shutdown-timeout", "1e300"], ["--shutdown-timeout", "31536000"]),
        (["--load-wait", "1e300"], ["--load-wait", "31536000"]),
        (["--startup-timeout", "1e300"], ["--startup-timeout", "31536000"]),
        (["--chat-template-kwargs", "{"], ["--chat-template-kwargs", "not valid json", "JSON object"]),
        (["--chat-template-kwargs", "[1]"], ["--chat-template-kwargs", "dictionary", "JSON object"]),
        (["--chat-template-kwargs", '{"a": NaN}'], ["--chat-template-kwargs", "nan is no json number"]),
        (["--chat-template-kwargs", "[" * 100_000], ["--chat-template-kwargs", "nested too deeply"]),
        (["--reasoning", "maybe"], ["--reasoning", "'auto', 'on' or 'off'"]),
        (["--default-seed", "-1"], ["--default-seed", "greater than or equal to 0"]),
        (["--cb-max-memory-percent", "80"], ["--cb-max-memory-percent", "fraction (0-1)"]),
        (["--cb-block-size", "2"], ["--cb-block-size", "greater than or equal to 4"]),
        (["--force-default-model"], ["--force-default-model needs a --default-model", "leave"]),
        (
            ["--force-default-embedding-model", "--default-model", "a/b"],
            ["--force-default-embedding-model needs a --default-embedding-model"],
        ),
        (["--flexserv-token", ""], ["--flexserv-token", "is empty", "leave"]),
        (["--admin-token", "  "], ["--admin-token", "is empty", "leave"]),
        (["--admin-token", "a\nb"], ["--admin-token", "printable ASCII"]),
        (["--flexserv-token", "schl\u00fcssel"], ["--flexserv-token", "printable ASCII"]),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_setting(flags: list[str], parts: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(flags)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_template_variables_are_a_json_object_and_a_switch_may_be_left_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLEXSERV_CHAT_TEMPLATE_KWARGS", '{"a": {"b": [1, null]}}')
    monkeypatch.setenv("FLEXSERV_CB_USE_CUDA_GRAPH", "none")
    settings = parse_settings([])
    assert settings.chat_template_kwargs == {"a": {"b": [1, None]}}
    assert settings.cb_use_cuda_graph is None
    switches = [
        parse_settings([flag]).cb_use_cuda_graph for flag in ("--cb-use-cuda-graph", "--no-cb-use-cuda-graph")
    ]
    assert switches == [True, False]
    assert parse_settings(["--chat-template-kwargs", "none"]).chat_template_kwargs is None


def test_a_bad_variable_is_named_as_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXSERV_OOM_MONITOR", "perhaps")
    with pytest.raises(SettingsError, match="FLEXSERV_OOM_MONITOR: cannot use 'perhaps'"):
        parse_settings([])


def test_a_service_link_of_kubernetes_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEXSERV_PORT", "tcp://10.0.0.1:80")
    with pytest.raises(SettingsError, match="enableServiceLinks: false"):
        parse_settings([])


def test_several_faults_are_all_reported() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_settings(["--port", "x", "--load-wait", "-3"])
    assert len(str(caught.value).splitlines()) == 2


def test_secrets_are_masked_and_not_repeated_in_errors(tmp_path: Path) -> None:
    settings = load_settings(admin_token="s3cret")
    assert "s3cret" not in repr(settings) and "s3cret" not in settings.model_dump_json()
    file = tmp_path / "token"
    file.write_text("x")
    with pytest.raises(SettingsError, match="both set") as caught:
        load_settings(admin_token="s3cret", admin_token_file=file)
    assert "s3cret" not in str(caught.value)


def test_an_empty_token_file_does_not_mean_no_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    with pytest.raises(SettingsError, match="is empty"):
        load_settings(flexserv_token_file=file)


def test_a_token_file_that_no_header_can_carry_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\nsecond\n")
    with pytest.raises(SettingsError, match="printable ASCII") as caught:
        load_settings(flexserv_token_file=file)
    assert "first" not in str(caught.value)


def test_blanks_around_a_token_are_no_part_of_it() -> None:
    token = load_settings(flexserv_token=" abc ").flexserv_token
    assert token is not None and token.get_secret_value() == "abc"


@pytest.mark.parametrize(
    ("flags", "code", "text"),
    [
        (["--help"], 0, "--oom-check-interval"),
        (["--nonsense"], 2, "flexserv-backend: error: unknown flag --nonsense"),
        (["--default-model", "../x"], 2, "--default-model: '../x' is a relative path"),
    ],
)
def test_the_program_runs_by_path_without_an_installation(flags: list[str], code: int, text: str) -> None:
    # -I: no PYTHONPATH, no current folder; -X importtime shows what a call loads.
    done = subprocess.run(
        [sys.executable, "-I", "-X", "importtime", str(PROGRAM), *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert text in done.stdout + done.stderr
    assert "transformers.cli" not in done.stderr
    assert "| torch\n" not in done.stderr.replace("|   ", "| ")
