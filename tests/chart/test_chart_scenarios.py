"""Every scenario of the chart's ci folder lints, and gives objects that Kubernetes knows."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from tests.support.chart import CHART, KUBERNETES, SCENARIOS, Manifests, helm, render, scenario

VERSIONS = ("1.30.0", KUBERNETES)  # the oldest that the chart takes, and the one that the cluster tests run
OF_OTHERS = {
    "ServiceMonitor",
    "PodMonitor",
    "PrometheusRule",
    "ScaledObject",
    "HTTPRoute",
}  # no schema of theirs is in Kubernetes
EXTRA = ("ConfigMap", "ScaledObject", "HTTPRoute")
every_scenario = pytest.mark.parametrize(
    "path", SCENARIOS, ids=lambda path: path.name.removesuffix("-values.yaml")
)


@cache
def validate(content: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(content), version, strict=True)


def manifests(path: Path) -> Manifests:
    return render(scenario(path))


def test_there_are_scenarios() -> None:
    names = {path.name.removesuffix("-values.yaml") for path in SCENARIOS}

    assert names >= {"default", "cpu", "gpu", "mig", "minimal", "offline-models", "hardened", "everything-on"}


@every_scenario
def test_helm_lint_finds_nothing(path: Path) -> None:
    helm("lint", str(CHART), "--strict", "--quiet", "--kube-version", KUBERNETES, "--values", str(path))


@every_scenario
def test_every_object_fits_the_schemas_of_kubernetes(path: Path) -> None:
    for item in manifests(path).objects:
        if item["kind"] not in OF_OTHERS:
            for version in VERSIONS:
                validate(json.dumps(item), version)


@every_scenario
def test_every_object_says_whose_it_is(path: Path) -> None:
    own = [
        item
        for item in manifests(path).objects
        if item["metadata"]["name"].startswith(("flexserv", "everything"))
    ]
    for item in own:
        if item["kind"] in EXTRA:  # it has the labels that its author gave it
            continue
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "flexserv"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["helm.sh/chart"].startswith("flexserv-")


@every_scenario
def test_no_variable_is_empty_or_set_twice(path: Path) -> None:
    for name, pod in manifests(path).pods():
        for container in pod["spec"]["containers"]:
            rows = container.get("env", [])
            names = [row["name"] for row in rows]
            assert len(names) == len(set(names)), name
            assert all(row.get("valueFrom") or row["value"] != "" for row in rows), name
            assert container.get("args") != [], name


@every_scenario
def test_every_container_has_a_read_only_root_and_no_rights(path: Path) -> None:
    for name, pod in manifests(path).pods():
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True, (name, container["name"])
            assert context["allowPrivilegeEscalation"] is False, (name, container["name"])
            assert context["capabilities"] == {"drop": ["ALL"]}, (name, container["name"])


@every_scenario
def test_only_the_operator_has_a_token_and_only_in_its_namespace(path: Path) -> None:
    rendered = manifests(path)

    for name, pod in rendered.pods():
        assert pod["spec"]["automountServiceAccountToken"] is name.endswith("-operator"), name
    assert not rendered.all("ClusterRole") and not rendered.all("ClusterRoleBinding")
    assert all(account["automountServiceAccountToken"] is False for account in rendered.all("ServiceAccount"))


@every_scenario
def test_every_mount_has_its_volume_and_every_volume_is_mounted(path: Path) -> None:
    for name, pod in manifests(path).pods():
        volumes = {volume["name"] for volume in pod["spec"].get("volumes", [])}
        mounts: list[dict[str, Any]] = [
            m for c in pod["spec"]["containers"] for m in c.get("volumeMounts", [])
        ]
        assert {mount["name"] for mount in mounts} == volumes, name
        paths = [mount["mountPath"] for mount in mounts]
        assert len(paths) == len(set(paths)), name
