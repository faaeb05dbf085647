"""The operator's Deployment says all that the operator can be told, and follows its own release."""

from typing import Any

import pytest
from flexserv_operator.config import PREFIX, Config

from tests.support.chart import nested, render, schema

OWN = {
    "namespace",
    "backend_service",
    "admin_token_file",
    "health_port",
    "metrics_port",
}  # what the chart decides
WANTED: dict[str, Any] = {
    "adopt_unreferenced": False,
    "shared_cache": True,
    "tick_seconds": 3.5,
    "poll_timeout_seconds": 2,
    "log_level": "debug",
    "log_format": "json",
}


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def test_what_all_values_say_is_what_the_operator_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WANTED.keys() == Config.model_fields.keys() - OWN
    values = {
        "operator": {camel(name): value for name, value in WANTED.items()},
        "backend": {"auth": {"adminToken": {"secretName": "admin"}}},
    }
    manifests = render(values)
    for name, value in manifests.env("operator").items():
        monkeypatch.setenv(name, value)
    namespace = next(r for r in manifests.container("operator")["env"] if r["name"].endswith("_NAMESPACE"))
    assert namespace["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"

    read = Config(namespace="models")  # type: ignore[call-arg]

    assert {name: getattr(read, name) for name in WANTED} == WANTED
    assert str(read.admin_token_file) == "/run/secrets/flexserv/token"
    ports = {port["name"]: port["containerPort"] for port in manifests.container("operator")["ports"]}
    assert ports == {"health": read.health_port, "metrics": read.metrics_port}


def test_the_operator_has_a_home_that_it_can_read_and_write() -> None:
    container = render().container("operator")

    assert {"name": "HOME", "value": "/tmp"} in container["env"]
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


def test_null_leaves_a_setting_to_the_operator() -> None:
    env = render({"operator": dict.fromkeys(map(camel, WANTED))}).env("operator")

    assert not {f"{PREFIX}{name.upper()}" for name in WANTED} & env.keys()


@pytest.mark.parametrize(
    ("cache", "said", "shared"),
    [
        ({}, None, None),
        ({"persistent": True}, None, None),
        ({"persistent": True, "accessMode": "ReadWriteMany"}, None, "true"),
        ({"existingClaim": "weights", "accessMode": "ReadWriteMany"}, None, "true"),
        ({"persistent": True, "accessMode": "ReadWriteMany"}, False, "false"),
        ({"accessMode": "ReadWriteMany"}, None, None),
        ({}, True, "true"),
    ],
    ids=[
        "a cache per pod",
        "one pod's claim",
        "a new claim of all pods",
        "an existing claim of all pods",
        "the value wins over the claim",
        "no claim at all",
        "the value wins over the emptyDir",
    ],
)
def test_the_operator_knows_by_itself_that_all_pods_share_one_cache(
    cache: dict[str, Any], said: bool | None, shared: str | None
) -> None:
    env = render({"backend": {"cache": cache}, "operator": {"sharedCache": said}}).env("operator")

    assert env.get(f"{PREFIX}SHARED_CACHE") == shared


@pytest.mark.parametrize("name", sorted(WANTED))
def test_the_schema_allows_what_the_operator_allows(name: str) -> None:
    theirs = Config.model_json_schema()["properties"][name]
    ours = schema()["properties"]["operator"]["properties"][camel(name)]

    assert ours["type"] == [theirs["type"], "null"]
    for limit in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern"):
        assert ours.get(limit) == theirs.get(limit), limit
    assert set(ours.get("enum", [])) - {None} == set(theirs.get("enum", []))


def test_the_operator_follows_the_service_of_its_own_release() -> None:
    manifests = render(release="other")

    assert manifests.env("operator")["FLEXSERV_OPERATOR_BACKEND_SERVICE"] == "other-flexserv"
    assert manifests.one("Service", "backend")["metadata"]["name"] == "other-flexserv"


@pytest.mark.parametrize(
    ("auth", "secret"),
    [
        ({}, None),
        ({"token": {"secretName": "clients"}}, "clients"),
        ({"adminToken": {"secretName": "admin"}}, "admin"),
        ({"token": {"secretName": "clients"}, "adminToken": {"secretName": "admin"}}, "admin"),
    ],
)
def test_the_operator_has_the_strongest_token_that_the_backend_asks_for(
    auth: dict[str, Any], secret: str | None
) -> None:
    manifests = render(nested("backend.auth", auth))
    mounted = [v["secret"]["secretName"] for v in manifests.pod("operator")["volumes"] if "secret" in v]

    assert mounted == ([secret] if secret else [])
    assert ("FLEXSERV_OPERATOR_ADMIN_TOKEN_FILE" in manifests.env("operator")) == bool(secret)
