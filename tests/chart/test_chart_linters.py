"""kubeconform, kube-score and helm-unittest, each over all that the charts can make."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support.chart import CHART, KUBERNETES, SCENARIOS, helm, render, scenario, tool
from tests.support.schemas import LOCATION, write_crd_schemas, write_kubernetes_schemas

CACHE = Path(os.environ.get("FLEXSERV_CACHE", Path.home() / ".cache" / "flexserv"))
OLDEST = "1.30.0"
MODELS_CHART = CHART.parent / "flexserv-models"
every_scenario = pytest.mark.parametrize(
    "path", SCENARIOS, ids=lambda path: path.name.removesuffix("-values.yaml")
)


def run(*command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool(command[0]), *command[1:]], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


@cache
def text_of(path: Path) -> str:
    return "\n---\n".join(json.dumps(item) for item in render(scenario(path)).objects)


@pytest.fixture(scope="module", params=[OLDEST, KUBERNETES])
def schemas(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Schemas of all kinds in the scenarios: of that Kubernetes, of our CRD, and of the CRDs of others."""
    folder = tmp_path_factory.mktemp(f"schemas-{request.param}")
    crds = sorted((CACHE / "crds").glob("*.yaml"))
    assert crds, "run `hack/tools charts`"
    known = set(write_crd_schemas(folder, [*crds, CHART / "files" / "flexservmodel-crd.yaml"]))
    objects = [item for path in SCENARIOS for item in render(scenario(path)).objects]
    kinds = {(item["apiVersion"], item["kind"]) for item in objects}
    write_kubernetes_schemas(folder, request.param, sorted(kinds - known))
    return folder


def kubeconform(folder: Path, text: str) -> dict[str, Any]:
    answer = run(
        "kubeconform", "-strict", "-summary", "-output", "json",
        "-schema-location", f"{folder}/{LOCATION}", "-", stdin=text,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def test_kubeconform_takes_every_object_of_every_scenario(schemas: Path) -> None:
    found = kubeconform(schemas, "\n---\n".join(text_of(path) for path in SCENARIOS))

    assert not found["resources"]
    assert found["summary"]["valid"] > 10 * len(SCENARIOS)
    assert (found["summary"]["errors"], found["summary"]["skipped"]) == (0, 0)


def test_kubeconform_takes_the_models_of_the_second_chart(schemas: Path) -> None:
    values = MODELS_CHART / "ci" / "everything-on-values.yaml"
    found = kubeconform(schemas, helm("template", "models", str(MODELS_CHART), "--values", str(values)))

    assert found["summary"] == {"valid": 2, "invalid": 0, "errors": 0, "skipped": 0}


@pytest.mark.parametrize("kind", ["Deployment", "HTTPRoute", "ScaledObject"])
def test_kubeconform_would_see_a_field_that_does_not_exist(schemas: Path, kind: str) -> None:
    (item, *_) = render(scenario(CHART / "ci" / "scaled-and-routed-values.yaml")).all(kind)
    wrong = {**item, "spec": {**item["spec"], "wrong": 1}}

    assert kubeconform(schemas, json.dumps(wrong))["summary"]["invalid"] == 1


class Ignored(NamedTuple):
    """A critical finding of kube-score that is meant to be so, and why."""

    check: str
    component: str
    comment: str
    reason: str


IGNORED = (
    Ignored("container-resources", "*", "CPU limit is not set", "a limit throttles what the node has idle"),
    Ignored(
        "container-resources", "backend", "is not set",
        "what is needed depends on the models: the chart cannot know it, and the notes ask for a limit",
    ),
    Ignored(
        "container-image-pull-policy", "*", "ImagePullPolicy",
        "a tag of ours never moves, and a node without its registry must be able to start a pod again",
    ),
    Ignored(
        "pod-networkpolicy", "*", "does not have a matching NetworkPolicy",
        "on by default it would cut off gateways and Prometheus; a pod of `helm test` listens on nothing",
    ),
    Ignored(
        "container-security-context-user-group-id", "*", "running with a low",
        "the platform of that scenario picks user and group itself, and refuses pods that ask for one",
    ),
)  # fmt: skip


def criticals(path: Path) -> list[tuple[str, str, str]]:
    """(check, component, what kube-score says) of each critical finding."""
    answer = run("kube-score", "score", "--output-format", "json", "-", stdin=text_of(path))
    found = []
    for scored in json.loads(answer.stdout):
        labels = scored["object_meta"].get("labels") or {}
        component = labels.get("app.kubernetes.io/component", "")
        for check in scored["checks"]:
            if check["grade"] == 1 and not check["skipped"]:
                comments = check["comments"] or [{"summary": check["check"]["name"]}]
                found += [(check["check"]["id"], component, comment["summary"]) for comment in comments]
    return found


def ignored(check: str, component: str, comment: str) -> Ignored | None:
    fitting = [
        one
        for one in IGNORED
        if one.check == check and one.component in ("*", component) and one.comment in comment
    ]
    return fitting[0] if fitting else None


@every_scenario
def test_kube_score_has_nothing_critical_to_say(path: Path) -> None:
    assert [finding for finding in criticals(path) if ignored(*finding) is None] == []


def test_every_ignored_finding_exists() -> None:
    used = {ignored(*finding) for path in SCENARIOS for finding in criticals(path)}

    assert set(IGNORED) <= used


def test_only_where_the_platform_picks_the_user_is_none_named() -> None:
    check = "container-security-context-user-group-id"
    named = {path.name for path in SCENARIOS if any(found == check for found, _, _ in criticals(path))}

    assert named == {"openshift-values.yaml"}


def test_the_policy_is_scored_where_it_is_on() -> None:
    """The finding is ignored because it is off by default; where it is on, no pod that listens is without."""
    found = criticals(CHART / "ci" / "hardened-values.yaml")

    assert {component for check, component, _ in found if check == "pod-networkpolicy"} <= {"test"}


@pytest.mark.parametrize("chart", [CHART, MODELS_CHART], ids=lambda chart: chart.name)
def test_the_charts_own_unit_tests_pass(chart: Path) -> None:
    suites = sorted((chart / "tests").glob("*_test.yaml"))
    answer = run("helm-unittest", "--strict", str(chart))

    assert suites
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"Test Suites: {len(suites)} passed" in answer.stdout.replace("\x1b[0m", "")


def test_every_scenario_has_a_unit_test() -> None:
    named = set()
    for suite in (CHART / "tests").glob("*_test.yaml"):
        for document in yaml.safe_load_all(suite.read_text(encoding="utf-8")):
            for test in [document, *document["tests"]]:
                named |= {Path(value).name for value in test.get("values", [])}

    assert {path.name for path in SCENARIOS} <= named
