"""How Prometheus finds the pods, and Grafana the dashboard."""

import json
from typing import Any

import pytest

from tests.support.chart import CHART, nested, render


@pytest.mark.parametrize("component", ["backend", "operator"])
def test_a_pod_monitor_finds_its_port_by_name(component: str) -> None:
    manifests = render(nested("metrics.podMonitor.enabled", True))
    monitor = manifests.one("PodMonitor", component)["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    template = manifests.one("Deployment", component)["spec"]["template"]

    assert monitor["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in manifests.container(component)["ports"]}
    assert endpoint["path"] == "/metrics"


@pytest.mark.parametrize("kind", ["serviceMonitor", "podMonitor"])
def test_a_monitor_looks_in_its_own_namespace_and_keeps_the_labels_of_the_target(kind: str) -> None:
    for monitor in render(nested(f"metrics.{kind}.enabled", True)).all(f"{kind[0].upper()}{kind[1:]}"):
        endpoints = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["models"]}
        assert not any("honorLabels" in endpoint for endpoint in endpoints)


def dashboard_map(values: dict[str, Any]) -> dict[str, Any]:
    return render({"metrics": {"dashboard": values}}).one("ConfigMap", "dashboard")


def test_the_dashboard_is_in_a_config_map_that_the_sidecar_finds() -> None:
    found = dashboard_map({"enabled": True})
    (content,) = found["data"].values()

    assert json.loads(content) == json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert not [item for item in render().all("ConfigMap") if "dashboard" in item["metadata"]["name"]]


def test_the_dashboard_links_the_runbook_where_its_address_is_known() -> None:
    plain = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))
    address = "https://wiki.example/RUNBOOK.md?a=1&b=2"
    metrics = {"dashboard": {"enabled": True}, "prometheusRule": {"runbookUrl": address}}
    (content,) = render({"metrics": metrics}).one("ConfigMap", "dashboard")["data"].values()
    (link,) = json.loads(content)["links"]

    assert (link["title"], link["type"], link["url"]) == ("Runbook", "link", address)
    assert {**json.loads(content), "links": None} == {**plain, "links": None}


def test_the_dashboards_labels_and_folder_are_the_users() -> None:
    labels, annotations = {"grafana_dashboard": None, "mine": "yes"}, {"grafana_folder": "Models"}
    metadata = dashboard_map({"enabled": True, "labels": labels, "annotations": annotations})["metadata"]

    assert metadata["labels"]["mine"] == "yes" and "grafana_dashboard" not in metadata["labels"]
    assert metadata["annotations"] == annotations
