"""What a backend in a pod says of itself, and what the cluster says of its container."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
from installation import Installation
from kube import Kube
from prometheus_client.parser import text_string_to_metric_families


class BackendInPod:
    """The backend behind one port-forward, which ends with its container."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.openai = openai.OpenAI(
            base_url=f"{url}/v1", api_key=token or "unused", max_retries=0, timeout=180
        )

    def get(self, path: str) -> Any:
        reply = httpx.get(f"{self.url}{path}", headers=self.headers, timeout=30)
        reply.raise_for_status()
        return reply.json()

    def inventory(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/v1/flexserv/models/loaded")
        return found

    def resident(self) -> set[str]:
        """The served names (ids, where there is none) of the models in memory."""
        return {model["served_name"] or model["model_id"] for model in self.inventory()["models"]}

    def in_weights(self, model_id: str) -> dict[str, Any] | None:
        """The model's load, if its weights are being loaded at this moment."""
        for load in self.inventory()["loading"]:
            if load["model_id"] == model_id and load["stage"] == "weights":
                found: dict[str, Any] = load
                return found
        return None

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples with these labels."""
        text = httpx.get(f"{self.url}/metrics", timeout=30).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )


@contextlib.contextmanager
def backend(installation: Installation, token: str | None = None) -> Iterator[BackendInPod]:
    """A way to the newest backend pod while the block runs."""
    target = f"pod/{installation.backend_pod()['metadata']['name']}"
    with installation.kube.forward(target, "http") as url:
        there = BackendInPod(url, token)
        with there.openai:
            yield there


def container(installation: Installation) -> dict[str, Any]:
    """The status of the backend's container in the newest pod."""
    statuses: list[dict[str, Any]] = installation.backend_pod()["status"]["containerStatuses"]
    return next(status for status in statuses if status["name"] == "backend")


def restarted(installation: Installation, before: int) -> bool:
    """Whether the container was started again since it had been so `before` times, and is Ready."""
    now = container(installation)
    return bool(now["restartCount"] > before and now["ready"])


def events(kube: Kube, name: str) -> list[tuple[str, str]]:
    """(reason, message) of every Event about a FlexServModel."""
    found = kube.get(
        "events", f"--field-selector=involvedObject.kind=FlexServModel,involvedObject.name={name}"
    )
    return [(event["reason"], event["message"]) for event in found["items"]]


def flexservmodel(name: str, **spec: Any) -> str:
    """A manifest."""
    return json.dumps(
        {
            "apiVersion": "flexserv.io/v1alpha1",
            "kind": "FlexServModel",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def ready_condition(status: dict[str, Any]) -> dict[str, Any]:
    """The condition Ready of a FlexServModel's status."""
    conditions: list[dict[str, Any]] = status["conditions"]
    return next(condition for condition in conditions if condition["type"] == "Ready")
