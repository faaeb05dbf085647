"""How many backend pods there are, who decides it, and how they go away."""

from typing import Any

import pytest

from tests.support.chart import RELEASE, nested, render

SELECTOR = {
    "app.kubernetes.io/name": "flexserv",
    "app.kubernetes.io/instance": RELEASE,
    "app.kubernetes.io/component": "backend",
}


def backend_spec(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = render(values).one("Deployment", "backend")["spec"]
    return found


def test_an_autoscaler_alone_decides_how_many_pods_there_are() -> None:
    values = nested("backend.autoscaling", {"enabled": True, "minReplicas": 2, "maxReplicas": 7})
    scaler = render(values).one("HorizontalPodAutoscaler", "backend")

    assert "replicas" not in backend_spec(values)
    assert (scaler["spec"]["minReplicas"], scaler["spec"]["maxReplicas"]) == (2, 7)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "flexserv-backend"}
    assert scaler["spec"]["scaleTargetRef"] == target
    assert backend_spec({})["replicas"] == 1
    assert not render().all("HorizontalPodAutoscaler")


def test_zero_pods_are_a_number_and_null_is_none() -> None:
    assert backend_spec(nested("backend.replicas", 0))["replicas"] == 0
    assert "replicas" not in backend_spec(nested("backend.replicas", None))


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ({"autoscaling": {"enabled": True}}, "RollingUpdate"),
        ({"autoscaling": {"enabled": True, "maxReplicas": 1}}, "Recreate"),
        ({"replicas": None}, "RollingUpdate"),
        ({"replicas": 9, "autoscaling": {"enabled": True, "maxReplicas": 1}}, "Recreate"),
    ],
)
def test_the_roll_out_follows_the_largest_number_of_pods(backend: dict[str, Any], kind: str) -> None:
    assert backend_spec({"backend": backend})["strategy"]["type"] == kind


def test_nodes_are_drained_of_one_backend_after_the_other_and_of_broken_ones_always() -> None:
    budget = render().one("PodDisruptionBudget", "backend")["spec"]

    assert budget == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": SELECTOR},
    }
    assert not render(nested("backend.podDisruptionBudget.enabled", False)).all("PodDisruptionBudget")


def test_a_spread_without_selector_counts_the_backends_pods() -> None:
    own = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    other = {**own, "labelSelector": {"matchLabels": {"app": "other"}}}
    pod = render(nested("backend.topologySpreadConstraints", [own, other])).pod("backend")

    assert pod["topologySpreadConstraints"] == [{**own, "labelSelector": {"matchLabels": SELECTOR}}, other]
