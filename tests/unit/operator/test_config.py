"""The operator's settings."""

import pytest
from flexserv_operator.config import Config, read_config
from flexserv_operator.errors import BadSettings

REQUIRED = ["--namespace", "team", "--backend-service", "flexserv"]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in Config.model_fields:
        monkeypatch.delenv(f"FLEXSERV_OPERATOR_{name.upper()}", raising=False)


def test_defaults():
    config = read_config(REQUIRED)
    assert (config.adopt_unreferenced, config.tick_seconds, config.poll_timeout_seconds) == (True, 10, 5)
    assert (config.health_port, config.metrics_port, config.log_level) == (8080, 9090, "info")
    assert config.admin_token_file is None


def test_every_setting_has_a_variable(monkeypatch, tmp_path):
    token = tmp_path / "token"
    token.write_text("x")
    values = {
        "namespace": "team",
        "backend_service": "flexserv",
        "adopt_unreferenced": "false",
        "admin_token_file": str(token),
        "tick_seconds": "3",
        "poll_timeout_seconds": "2",
        "health_port": "1001",
        "metrics_port": "1002",
        "log_level": "debug",
        "log_format": "json",
        "shared_cache": "true",
    }
    assert values.keys() == Config.model_fields.keys()
    for name, value in values.items():
        monkeypatch.setenv(f"FLEXSERV_OPERATOR_{name.upper()}", value)
    config = read_config([])
    assert (config.adopt_unreferenced, config.tick_seconds, config.admin_token_file) == (False, 3, token)


def test_a_flag_wins_over_its_variable(monkeypatch):
    monkeypatch.setenv("FLEXSERV_OPERATOR_TICK_SECONDS", "3")
    assert read_config([*REQUIRED, "--tick-seconds", "4"]).tick_seconds == 4


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--backend-service", "flexserv"], ["--namespace", "FLEXSERV_OPERATOR_NAMESPACE", "required"]),
        ([*REQUIRED, "--tick-seconds", "0"], ["--tick-seconds", "greater than 0"]),
        ([*REQUIRED, "--health-port", "x"], ["--health-port", "FLEXSERV_OPERATOR_HEALTH_PORT", "integer"]),
        ([*REQUIRED, "--log-level", "loud"], ["--log-level", "'debug'"]),
        ([*REQUIRED, "--namespace", "A_b"], ["--namespace"]),
        ([*REQUIRED, "--admin-token-file", "/none"], ["--admin-token-file", "/none", "mount the Secret"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(flags, words):
    with pytest.raises(BadSettings) as raised:
        read_config(flags)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_an_unknown_flag_ends_the_program(capsys):
    with pytest.raises(SystemExit) as raised:
        read_config([*REQUIRED, "--tick-second", "3"])
    assert raised.value.code == 2
    assert "--tick-second" in capsys.readouterr().err


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit):
        read_config(["--help"])
    text = capsys.readouterr().out
    assert all(f"--{name.replace('_', '-')}" in text for name in Config.model_fields)
