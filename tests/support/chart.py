"""Renders the FlexServ chart with the real helm, and finds objects in what comes out."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
CHART = ROOT / "charts" / "flexserv"
SCENARIOS = sorted((CHART / "ci").glob("*-values.yaml"))
RELEASE, NAMESPACE = "flexserv", "models"
KUBERNETES = "1.34.0"
HELM_TIMEOUT_S = 60

Object = dict[str, Any]


class ChartRefused(Exception):
    """helm said no; the message is what it said."""


class NoKeyTwice(yaml.CSafeLoader):
    """Refuses a mapping with the same key twice, which some readers take and others do not."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise ChartRefused(f"rendered with keys twice in one object: {twice} {node.start_mark}")
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class Manifests:
    """All objects of one rendering, hooks included."""

    objects: tuple[Object, ...]

    def all(self, kind: str) -> list[Object]:
        return [item for item in self.objects if item["kind"] == kind]

    def one(self, kind: str, component: str) -> Object:
        """The object of that kind whose component label says so; there must be exactly one."""
        found = [
            item
            for item in self.all(kind)
            if item["metadata"].get("labels", {}).get("app.kubernetes.io/component") == component
        ]
        assert len(found) == 1, f"{len(found)} objects of kind {kind} for {component}"
        return found[0]

    def pod(self, component: str) -> Object:
        """The pod spec of a component's Deployment."""
        spec: Object = self.one("Deployment", component)["spec"]["template"]["spec"]
        return spec

    def container(self, component: str) -> Object:
        """The container that bears the component's name."""
        return next(c for c in self.pod(component)["containers"] if c["name"] == component)

    def env(self, component: str) -> dict[str, str]:
        """The variables with a plain value of a component's container."""
        return {row["name"]: row["value"] for row in self.container(component)["env"] if "value" in row}

    def pods(self) -> list[tuple[str, Object]]:
        """(name, {metadata, spec}) of every pod that the release can start, tests included."""
        templates = [(d["metadata"]["name"], d["spec"]["template"]) for d in self.all("Deployment")]
        return templates + [(p["metadata"]["name"], p) for p in self.all("Pod")]

    def test_pod(self, check: str) -> Object:
        """The pod of `helm test` that does this check."""
        return next(p for p in self.all("Pod") if p["metadata"]["name"].endswith(f"-test-{check}"))


def tool(name: str) -> str:
    """The path of a program that the chart's tests need."""
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name} is not on PATH: run `hack/tools charts`")
    return found


def helm(*arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
    """Run helm and return what it printed; ChartRefused with its message otherwise."""
    env = {**os.environ, "KUBECONFIG": str(kubeconfig or os.devnull)}
    result = subprocess.run(
        [tool("helm"), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        env=env,
        timeout=HELM_TIMEOUT_S,
        check=False,
    )
    if result.returncode != 0:
        raise ChartRefused(result.stderr + result.stdout)
    return result.stdout


def render(
    values: Mapping[str, Any] | None = None, *, release: str = RELEASE, namespace: str = NAMESPACE
) -> Manifests:
    """The chart's objects for these values; ChartRefused where the chart does not take them."""
    return _rendered(json.dumps(values or {}), release, namespace)


@cache
def _rendered(values: str, release: str, namespace: str) -> Manifests:
    output = helm(
        "template", release, str(CHART), "--namespace", namespace, "--kube-version", KUBERNETES, "-f", "-",
        stdin=values,
    )  # fmt: skip
    return Manifests(tuple(item for item in yaml.load_all(output, NoKeyTwice) if item))


def scenario(path: Path) -> dict[str, Any]:
    """The values of one file of the chart's ci folder."""
    values: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    return values


@cache
def default_values() -> dict[str, Any]:
    """values.yaml, as it is."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return values


@cache
def schema() -> dict[str, Any]:
    """values.schema.json, as it is."""
    content: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    return content


def nested(path: str, value: Any) -> dict[str, Any]:
    """`nested("backend.gpu.count", 0)` is `{"backend": {"gpu": {"count": 0}}}`."""
    for name in reversed(path.split(".")):
        value = {name: value}
    result: dict[str, Any] = value
    return result
