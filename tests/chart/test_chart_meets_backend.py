"""What the chart says about the backend's routes and metrics is what the backend has."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi import FastAPI
from hf_transformers_backend.app import build_app
from hf_transformers_backend.settings import Settings

from tests.support.chart import CHART, ROOT, default_values, nested, render, scenario

HOSTS = ["llm.example.com", "other.example.com"]


@pytest.fixture(scope="module")
def app() -> FastAPI:
    """The backend's application, not started."""
    return build_app(Settings(device="cpu"))


@pytest.fixture(scope="module")
def openai_routes(app: FastAPI) -> set[str]:
    """The paths that clients from outside need."""
    return {path for path in app.openapi()["paths"] if re.match(r"/v1/(?!flexserv/)", path)}


def lets_through(rule: dict[str, str], path: str) -> bool:
    if rule["pathType"] == "Exact":
        return path == rule["path"]
    return path == rule["path"] or path.startswith(rule["path"] + "/")


def ingress_rules(values: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    rules = render(values).one("Ingress", "backend")["spec"]["rules"]
    return {rule["host"]: rule["http"]["paths"] for rule in rules}


def test_an_ingress_lets_in_every_openai_route_and_nothing_else(
    app: FastAPI, openai_routes: set[str]
) -> None:
    by_host = ingress_rules(nested("backend.ingress", {"enabled": True, "hosts": HOSTS}))

    assert list(by_host) == HOSTS
    assert openai_routes >= {"/v1/chat/completions", "/v1/models", "/v1/models/{model}"}
    for rules in by_host.values():
        let_in = {path for path in app.openapi()["paths"] if any(lets_through(rule, path) for rule in rules)}
        assert let_in == openai_routes
        for inside in ("/", "/docs", "/openapi.json", "/metrics", "/v1", "/v1/flexserv/models/load"):
            assert not any(lets_through(rule, inside) for rule in rules), inside
        ports = {rule["backend"]["service"]["name"]: rule["backend"]["service"]["port"] for rule in rules}
        assert ports == {"flexserv": {"name": "http"}}


def test_the_route_of_the_gateway_example_lets_in_the_same(openai_routes: set[str]) -> None:
    rendered = render(scenario(CHART / "ci" / "scaled-and-routed-values.yaml"))
    (route,) = rendered.all("HTTPRoute")
    (rule,) = route["spec"]["rules"]
    kinds = {"Exact": "Exact", "PathPrefix": "Prefix"}
    matches = [{"path": m["path"]["value"], "pathType": kinds[m["path"]["type"]]} for m in rule["matches"]]
    ingress = ingress_rules(nested("backend.ingress", {"enabled": True, "hosts": HOSTS}))[HOSTS[0]]

    assert matches == [{"path": path["path"], "pathType": path["pathType"]} for path in ingress]
    (target,) = rule["backendRefs"]
    assert target["name"] == rendered.one("Service", "backend")["metadata"]["name"]
    assert target["port"] == default_values()["backend"]["service"]["port"]


def test_what_is_scaled_on_is_what_the_backend_exports(app: FastAPI) -> None:
    exported = set(re.findall(r"^# TYPE (\S+)", app.state.backend.metrics.render().decode(), re.MULTILINE))
    scaler = render(nested("backend.autoscaling.enabled", True)).one("HorizontalPodAutoscaler", "backend")
    names = {metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]}
    scaled_object = render(scenario(CHART / "ci" / "scaled-and-routed-values.yaml")).all("ScaledObject")[0]
    query = scaled_object["spec"]["triggers"][0]["metadata"]["query"]

    assert names == {"flexserv_requests_in_flight", "flexserv_requests_waiting"}
    assert names | set(re.findall(r"flexserv_\w+", query)) <= exported


def test_the_readme_tells_the_adapter_of_the_same_metrics() -> None:
    text = (CHART / "README.md").read_text(encoding="utf-8")
    rules = yaml.safe_load(text.partition("<!-- adapter -->")[2].partition("```yaml")[2].partition("```")[0])
    metrics = default_values()["backend"]["autoscaling"]["metrics"]

    series = {re.match(r"\w+", rule["seriesQuery"])[0] for rule in rules["rules"]["custom"]}  # type: ignore[index]
    assert series == {metric["pods"]["metric"]["name"] for metric in metrics}


@pytest.mark.parametrize("readme", [CHART / "README.md", ROOT / "README.md"], ids=["chart", "project"])
def test_the_readmes_name_the_cuda_and_the_driver_that_the_notes_name(readme: Path) -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    text = " ".join(readme.read_text(encoding="utf-8").split())

    cuda, driver = (chart["annotations"][f"flexserv.io/{name}"] for name in ("cuda", "nvidia-driver"))
    assert f"built for CUDA {cuda} and needs NVIDIA driver {driver} or newer" in text
