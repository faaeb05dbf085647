"""The second chart: a list in values becomes FlexServModels that the API server takes."""

import json
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, KUBERNETES, ROOT, ChartRefused, helm
from tests.support.control_plane import ControlPlane
from tests.support.eventually import eventually

MODELS_CHART = ROOT / "charts" / "flexserv-models"
EVERYTHING = MODELS_CHART / "ci" / "everything-on-values.yaml"
LIMITS = ("type", "enum", "minimum", "maximum", "minLength", "maxLength")


def models(values: dict[str, Any]) -> list[dict[str, Any]]:
    command = ("template", "models", str(MODELS_CHART), "--kube-version", KUBERNETES, "-f", "-")
    output = helm(*command, stdin=json.dumps(values))
    return [item for item in yaml.safe_load_all(output) if item]


def everything() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load(EVERYTHING.read_text(encoding="utf-8"))
    return values


def spec_of_the_crd() -> dict[str, Any]:
    crd = yaml.safe_load((CHART / "files" / "flexservmodel-crd.yaml").read_text(encoding="utf-8"))
    spec: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def test_the_schema_knows_the_fields_of_a_flexservmodel_and_no_other() -> None:
    schema = json.loads((MODELS_CHART / "values.schema.json").read_text(encoding="utf-8"))
    item = schema["properties"]["models"]["items"]
    theirs = spec_of_the_crd()

    assert item["properties"].keys() - {"name", "labels", "annotations"} == theirs["properties"].keys()
    assert set(item["required"]) == {"name", *theirs["required"]}
    for name, field in theirs["properties"].items():
        wanted = {limit: field[limit] for limit in LIMITS if limit in field}
        assert {limit: item["properties"][name][limit] for limit in wanted} == wanted, name


def test_the_everything_on_scenario_uses_every_field() -> None:
    used = {name for model in everything()["models"] for name in model}

    assert used == spec_of_the_crd()["properties"].keys() | {"name", "labels", "annotations"}


def test_each_entry_becomes_a_model_with_its_own_words() -> None:
    values = everything()
    made = models(values)

    for entry, model in zip(values["models"], made, strict=True):
        told = {k: v for k, v in entry.items() if k not in ("name", "labels", "annotations")}
        assert model["metadata"]["name"] == entry["name"]
        assert model["spec"] == {"backendRef": {"name": "flexserv"}, **told}
    assert made[0]["metadata"]["labels"].items() >= {"tier": "gold", "team": "inference"}.items()
    assert "backendRef" not in models({"models": [{"name": "a", "model": "b"}]})[0]["spec"]


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ({"name": "a"}, "missing property 'model'"),
        ({"model": "b"}, "missing property 'name'"),
        ({"name": "a", "model": "b", "residencey": "Pinned"}, "'residencey'"),
        ({"name": "a", "model": "b", "residency": "Always"}, "/models/0/residency'"),
        ({"name": "A_1", "model": "b"}, "/models/0/name'"),
        ({"name": "a", "model": "b", "priority": "high"}, "/models/0/priority': got string"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(entry: dict[str, Any], named: str) -> None:
    with pytest.raises(ChartRefused) as refused:
        models({"models": [entry]})
    assert named in str(refused.value)


def test_two_entries_of_one_name_are_refused() -> None:
    with pytest.raises(ChartRefused, match="the name a stands twice"):
        models({"models": [{"name": "a", "model": "b"}, {"name": "a", "model": "c"}]})


def test_helm_lint_finds_nothing() -> None:
    helm("lint", str(MODELS_CHART), "--strict", "--quiet", "--values", str(EVERYTHING))


@pytest.mark.usefixtures("no_crd")
def test_the_api_server_takes_what_comes_out(plane: ControlPlane, namespace: str) -> None:
    plane.install_crd(CHART / "files" / "flexservmodel-crd.yaml")
    path = f"/apis/flexserv.io/v1alpha1/namespaces/{namespace}/flexservmodels"
    arguments = ("--namespace", namespace, "--values", str(EVERYTHING))

    helm("install", "models", str(MODELS_CHART), *arguments, kubeconfig=plane.kubeconfig())
    assert {item["metadata"]["name"] for item in plane.call("GET", path)["items"]} == {"chat", "embedding"}

    helm("uninstall", "models", "--namespace", namespace, kubeconfig=plane.kubeconfig())
    eventually(lambda: plane.call("GET", path)["items"] == [], timeout=20)
