"""What becomes of a release, and of the models declared beside it, when the chart changes under them."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, SCENARIOS, ChartRefused, helm, render, scenario, tool
from tests.support.control_plane import ControlPlane
from tests.support.eventually import eventually

EARLIER = Path(__file__).parent / "fixtures" / "flexserv-0.1.0-alpha.1.tgz"
"""The chart as it was before autoscaling, budget, Ingress and limits of disk were added, packaged then."""
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/flexservmodels.flexserv.io"
CACHE = Path(os.environ.get("FLEXSERV_CACHE", Path.home() / ".cache" / "flexserv"))
SPECS: dict[str, dict[str, Any]] = {
    "pinned": {"model": "org/chat", "revision": "main", "servedName": "chat", "priority": 7},
    "standby": {"model": "/models/embed", "kind": "Embedding", "residency": "OnDemand", "priority": 0},
    "with-arguments": {"model": "org/think", "chatTemplateKwargs": {"enable_thinking": False}},
}  # fmt: skip


class Release:
    """One Helm release in a namespace, with models beside it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self._models = f"/apis/flexserv.io/v1alpha1/namespaces/{namespace}/flexservmodels"

    def helm(self, *arguments: str) -> str:
        return helm(*arguments, "--namespace", self.namespace, kubeconfig=self.plane.kubeconfig())

    def upgrade(self, *arguments: str, chart: Path = CHART) -> str:
        return self.helm("upgrade", "flexserv", str(chart), *arguments)

    def declare(self) -> None:
        body = {"apiVersion": "flexserv.io/v1alpha1", "kind": "FlexServModel"}
        for name, spec in SPECS.items():
            model = {**body, "metadata": {"name": name}, "spec": spec}
            eventually(lambda model=model: self.plane.call("POST", self._models, model), timeout=20)

    def models(self) -> dict[str, tuple[str, dict[str, Any]]]:
        """uid and spec of every model, by name."""
        items = eventually(lambda: self.plane.call("GET", self._models), timeout=20)["items"]
        return {item["metadata"]["name"]: (item["metadata"]["uid"], item["spec"]) for item in items}

    def backend(self) -> dict[str, Any]:
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/flexserv-backend"
        return self.plane.call("GET", path)["spec"]

    def variables(self) -> dict[str, str]:
        rows = self.backend()["template"]["spec"]["containers"][0]["env"]
        return {row["name"]: row.get("value", "") for row in rows}


@pytest.fixture
def release(plane: ControlPlane, namespace: str, no_crd: None) -> Release:
    """The earlier chart, installed with a value of the user's own and three models."""
    release = Release(plane, namespace)
    values = ("--set", "backend.gpu.count=0,backend.settings.modelTimeout=0")
    release.helm("install", "flexserv", str(EARLIER), *values)
    release.declare()
    return release


def test_the_fixture_is_small_and_older() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    earlier = yaml.safe_load(helm("show", "chart", str(EARLIER)))

    assert EARLIER.stat().st_size < 1_000_000
    assert earlier["name"] == chart["name"] and earlier["version"] != chart["version"]


def fields(crd: dict[str, Any]) -> set[str]:
    """The names in a model's spec."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"])


def test_models_live_through_upgrade_rollback_uninstall_and_reinstall(release: Release) -> None:
    before = release.models()
    assert before.keys() == SPECS.keys()
    assert "FLEXSERV_CACHE_LIMIT_BYTES" not in release.variables()

    release.upgrade("--reset-then-reuse-values")
    assert release.variables()["FLEXSERV_MODEL_TIMEOUT"] == "0"
    assert "FLEXSERV_CACHE_LIMIT_BYTES" in release.variables()
    crd = yaml.safe_load((CHART / "files" / "flexservmodel-crd.yaml").read_text(encoding="utf-8"))
    assert fields(release.plane.call("GET", CRD)) == fields(crd)
    assert release.models() == before

    release.helm("rollback", "flexserv", "1")
    assert "FLEXSERV_CACHE_LIMIT_BYTES" not in release.variables()
    assert release.models() == before

    release.upgrade("--reset-then-reuse-values")
    release.helm("uninstall", "flexserv")
    assert "deletionTimestamp" not in release.plane.call("GET", CRD)["metadata"]
    assert release.models() == before

    release.helm("install", "flexserv", str(CHART), "--set", "backend.gpu.count=0")
    assert release.models() == before
    owner = release.plane.call("GET", CRD)["metadata"]["annotations"]["meta.helm.sh/release-namespace"]
    assert owner == release.namespace


def test_reusing_values_without_the_new_defaults_is_refused_by_their_names(release: Release) -> None:
    with pytest.raises(ChartRefused, match=r"missing propert.*autoscaling"):
        release.upgrade("--reuse-values")

    assert "FLEXSERV_CACHE_LIMIT_BYTES" not in release.variables()


def kubectl(plane: ControlPlane, *arguments: str, stdin: str | None = None) -> str:
    result = subprocess.run(
        [tool("kubectl"), *arguments],
        input=stdin, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig())},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def with_crds(plane: ControlPlane) -> Iterator[None]:
    """The CRDs of others, and ours."""
    paths = [CHART / "files" / "flexservmodel-crd.yaml", *sorted((CACHE / "crds").glob("*.yaml"))]
    files = [argument for path in paths for argument in ("--filename", str(path))]
    kubectl(plane, "apply", "--server-side", "--force-conflicts", *files)
    kubectl(plane, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    yield
    kubectl(plane, "delete", "crd", "--all", "--timeout=30s")


@pytest.mark.usefixtures("with_crds")
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name.removesuffix("-values.yaml"))
def test_the_api_server_takes_every_object_of_a_scenario(
    plane: ControlPlane, namespace: str, path: Path
) -> None:
    objects = render(scenario(path), namespace=namespace).objects
    manifest = "\n---\n".join(json.dumps(item) for item in objects)
    command = ("apply", "--dry-run=server", "--validate=strict", "--namespace", namespace, "--filename", "-")
    taken = kubectl(plane, *command, stdin=manifest).splitlines()

    assert len(taken) == len(objects)
