"""Every flag of the backend can be set through values, nothing else can, and what is set is what it reads."""

from typing import Any

import pytest
from hf_transformers_backend.settings import Settings, env_of

from tests.support.chart import ChartRefused, Manifests, default_values, nested, render, schema

# What the chart decides itself: address, port, state folder, and the tokens, which come from Secrets.
OWN = {
    "host",
    "port",
    "state_dir",
    "cache_limit_bytes",
    "flexserv_token",
    "flexserv_token_file",
    "admin_token",
    "admin_token_file",
}
SETTINGS = sorted(Settings.model_fields.keys() - OWN)
VALUE_OTHER_THAN_DEFAULT: dict[str, Any] = {
    "default_model": "/models/chat",
    "default_embedding_model": "/models/embedding",
    "device": "cuda:1",
    "dtype": "bfloat16",
    "attn_implementation": "sdpa",
    "quantization": "bnb-8bit",
    "default_max_tokens": 77,
    "default_seed": 4294967295,
    "reasoning": "off",
    "chat_template_kwargs": {
        "style": 'brief & "plain" <b>',
        "depth": {"levels": [1000000, 0.5, None]},
        "on": True,
    },
    "cb_block_size": 64,
    "cb_num_blocks": 2**31,
    "cb_max_batch_tokens": 1024,
    "cb_max_memory_percent": 0.25,
    "cb_use_cuda_graph": False,
    "log_level": "debug",
    "image_hosts": "any",
    "oom_eviction": "all",
    "log_format": "json",
    "on_demand": "off",
    "shutdown_timeout": 12.5,
    "oom_ram_threshold": 71.5,
    "oom_vram_threshold": 72,
    "max_request_bytes": 2**31,
}


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def other_than_default(name: str) -> Any:
    if name in VALUE_OTHER_THAN_DEFAULT:
        return VALUE_OTHER_THAN_DEFAULT[name]
    default = Settings.model_fields[name].default
    return not default if isinstance(default, bool) else int(default) + 1


def backend_env(manifests: Manifests) -> dict[str, str]:
    return {name: value for name, value in manifests.env("backend").items() if name.startswith("FLEXSERV_")}


def from_environment() -> Settings:
    """Without the checks of the files that only the pod has."""
    given: dict[str, Any] = {}
    return Settings(**given)


def test_each_backend_setting_is_a_value_and_each_value_a_backend_setting() -> None:
    assert set(default_values()["backend"]["settings"]) == {camel(name) for name in SETTINGS}


def test_what_all_values_say_is_what_the_backend_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {name: other_than_default(name) for name in SETTINGS}
    values = nested("backend.settings", {camel(name): value for name, value in wanted.items()})
    for name, value in backend_env(render(values)).items():
        monkeypatch.setenv(name, value)

    monkeypatch.setenv("FLEXSERV_POD_UID", "no setting, and in the pod's environment all the same")

    read = from_environment()

    assert {name: getattr(read, name) for name in SETTINGS} == wanted
    assert all(wanted[name] != Settings.model_fields[name].default for name in SETTINGS)
    assert (read.host, read.port, str(read.state_dir)) == ("0.0.0.0", 8001, "/state")


def test_the_token_files_reach_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = {"token": {"secretName": "a"}, "adminToken": {"secretName": "b"}}
    for name, value in backend_env(render(nested("backend.auth", tokens))).items():
        monkeypatch.setenv(name, value)

    read = from_environment()

    assert str(read.flexserv_token_file) == "/run/secrets/flexserv/token"
    assert str(read.admin_token_file) == "/run/secrets/flexserv/admin-token"


def test_null_leaves_a_setting_to_the_backend() -> None:
    values = nested("backend.settings", dict.fromkeys(map(camel, SETTINGS)))
    values["operator"] = {"enabled": False}  # with it, two settings have another meaning when they are null

    assert not {env_of(name) for name in SETTINGS} & backend_env(render(values)).keys()


@pytest.mark.parametrize("value", [False, 0])
def test_false_and_zero_are_values(value: bool | int) -> None:
    kind = bool if value is False else (int, float)
    names = [
        name
        for name in SETTINGS
        if isinstance(Settings.model_fields[name].default, kind)
        and (value is False or not isinstance(Settings.model_fields[name].default, bool))
        and "exclusiveMinimum" not in setting_schema(name)
        and setting_schema(name).get("minimum", 0) == 0
    ]
    values = nested("backend.settings", dict.fromkeys(map(camel, names), value))

    env = backend_env(render(values))

    assert len(names) >= 5
    assert {name: env.get(env_of(name)) for name in names} == dict.fromkeys(names, str(value).lower())


def test_without_values_only_what_the_chart_decides_is_set() -> None:
    assert backend_env(render()) == {
        "FLEXSERV_HOST": "0.0.0.0",
        "FLEXSERV_PORT": "8001",
        "FLEXSERV_STATE_DIR": "/state",
        "FLEXSERV_CACHE_LIMIT_BYTES": str(50 * 2**30),
        "FLEXSERV_OOM_MONITOR": "true",
        "FLEXSERV_ON_DEMAND": "declared",
        "FLEXSERV_READY_AFTER_SYNC": "true",
    }


def test_without_the_operator_requests_may_load_and_nobody_is_waited_for() -> None:
    env = backend_env(render(nested("operator.enabled", False)))

    assert "FLEXSERV_ON_DEMAND" not in env
    assert "FLEXSERV_READY_AFTER_SYNC" not in env


def test_what_a_user_says_wins_over_the_choice_that_follows_from_the_operator() -> None:
    env = backend_env(render(nested("backend.settings", {"onDemand": "any", "readyAfterSync": False})))

    assert (env["FLEXSERV_ON_DEMAND"], env["FLEXSERV_READY_AFTER_SYNC"]) == ("any", "false")


def setting_schema(name: str) -> dict[str, Any]:
    """What the backend itself allows for a setting, in JSON schema's words."""
    found = dict(Settings.model_json_schema()["properties"][name])
    alternatives = [option for option in found.pop("anyOf", []) if option["type"] != "null"]
    for option in alternatives:
        found.update(option)
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_the_schema_allows_what_the_backend_allows(name: str) -> None:
    theirs = setting_schema(name)
    ours = schema()["properties"]["backend"]["properties"]["settings"]["properties"][camel(name)]

    assert ours["type"] == [theirs["type"], "null"]
    for limit in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern"):
        assert ours.get(limit) == theirs.get(limit), limit
    assert set(ours.get("enum", [])) - {None} == set(theirs.get("enum", []))


def test_the_roll_out_waits_longer_than_the_backend_may_take_to_start() -> None:
    startup_timeout = Settings.model_fields["startup_timeout"].default
    probe = default_values()["backend"]["probes"]["startup"]
    bound = int(startup_timeout) + probe["periodSeconds"] * probe["failureThreshold"]

    assert render().one("Deployment", "backend")["spec"]["progressDeadlineSeconds"] == bound + 600
    assert render(nested("backend.progressDeadlineSeconds", bound + 1))
    with pytest.raises(ChartRefused, match=rf"backend\.progressDeadlineSeconds \({bound}\) must be greater"):
        render(nested("backend.progressDeadlineSeconds", bound))


def test_the_grace_period_outlasts_the_sleep_and_the_drain() -> None:
    drain = int(Settings.model_fields["shutdown_timeout"].default)
    asleep = default_values()["backend"]["preStopSleepSeconds"]

    assert render(nested("backend.terminationGracePeriodSeconds", asleep + drain + 1))
    with pytest.raises(
        ChartRefused, match=r"backend\.terminationGracePeriodSeconds .* set it to \d+ or more"
    ):
        render(nested("backend.terminationGracePeriodSeconds", asleep + drain))
    with pytest.raises(ChartRefused, match=r"backend\.settings\.shutdownTimeout \(600\)"):
        render(nested("backend.settings.shutdownTimeout", 600))
