"""A namespace with a backend Service, pods made by hand, fake backends behind their addresses, and the real
operator as a process of its own with the rights of its Role."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from lab.ports import free_port

from tests.support.control_plane import ApiRejected, ControlPlane
from tests.support.eventually import eventually
from tests.support.fake_backend import FakeBackend
from tests.support.fake_fleet import Fleet
from tests.support.operator_nursery import ROOT, Child, Nursery

OPERATOR_TOKEN = "operator-of-this-test-only"
OPERATOR_USER = "flexserv-operator"
SERVICE = "flexserv"
PATIENCE_S = 30.0
"""For what takes a second or two: a busy machine must not fail a test."""
ROLE = [
    {"apiGroups": ["flexserv.io"], "resources": ["flexservmodels"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["flexserv.io"], "resources": ["flexservmodels/status"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]


class Operator:
    """One run of `python -m flexserv_operator`, or of its twin from the nursery."""

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        log: Path,
        settings: Mapping[str, str],
        nursery: Nursery | None = None,
        die_after: int | None = None,
    ) -> None:
        self.health_port, self.metrics_port = free_port(), free_port()
        self.log = log
        flags = {
            "namespace": namespace,
            "backend-service": SERVICE,
            "health-port": str(self.health_port),
            "metrics-port": str(self.metrics_port),
            **settings,
        }
        arguments = [argument for name, value in flags.items() for argument in (f"--{name}", value)]
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("FLEXSERV_OPERATOR")
        }
        environment |= {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT / "operator")}
        self.process: subprocess.Popen[bytes] | Child
        if nursery is not None:
            self.process = nursery.start(arguments, environment, log, die_after)
            return
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flexserv_operator", *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def get(self, port: int, path: str) -> httpx.Response:
        """What the operator's own servers answer."""
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=30, trust_env=False)

    def metric(self, sample: str) -> float:
        """The value of one line of /metrics, named with its labels."""
        lines = self.get(self.metrics_port, "/metrics").text.splitlines()
        return float(next(line.rpartition(" ")[2] for line in lines if line.rpartition(" ")[0] == sample))

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        self.process.send_signal(sent)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(5)
            raise


class World:
    """One namespace and what lives in it."""

    def __init__(
        self, plane: ControlPlane, namespace: str, fleet: Fleet, folder: Path, nursery: Nursery | None = None
    ) -> None:
        self.plane, self.namespace, self.fleet, self.folder = plane, namespace, fleet, folder
        self.nursery = nursery
        self.models = f"/apis/flexserv.io/v1alpha1/namespaces/{namespace}/flexservmodels"
        self.core = f"/api/v1/namespaces/{namespace}"
        self.operators: list[Operator] = []
        plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        self._grant()
        self.create_service()

    def _grant(self) -> None:
        rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.namespace}"
        self.plane.call("POST", f"{rbac}/roles", {"metadata": {"name": "operator"}, "rules": ROLE})
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "operator"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": OPERATOR_USER}],
        }
        self.plane.call("POST", f"{rbac}/rolebindings", binding)

    def create_service(self, name: str = SERVICE) -> None:
        ports = [{"name": "http", "port": 80, "targetPort": "http"}]
        spec = {"selector": {"app": name}, "ports": ports}
        self.plane.call("POST", f"{self.core}/services", {"metadata": {"name": name}, "spec": spec})

    def start_operator(self, die_after: int | None = None, **settings: str) -> Operator:
        """Run the operator; underscores in the names of settings stand for dashes. With `die_after` it dies
        after that many calls."""
        flags = {name.replace("_", "-"): value for name, value in settings.items()}
        log = self.folder / f"operator-{self.namespace}.log"
        kubeconfig = self.plane.kubeconfig(OPERATOR_TOKEN)
        operator = Operator(kubeconfig, self.namespace, log, flags, self.nursery, die_after)
        self.operators.append(operator)
        return operator

    def stop_operators(self) -> None:
        for operator in self.operators:
            if operator.process.poll() is None:
                operator.stop()

    # Pods

    def add_pod(self, name: str, address: str, **backend: Any) -> FakeBackend:
        """A running pod, and a backend behind its address."""
        container = {"name": "backend", "image": "none"}
        container["ports"] = [{"name": "http", "containerPort": self.fleet.port}]  # type: ignore[assignment]
        body = {
            "metadata": {"name": name, "labels": {"app": SERVICE}},
            "spec": {"nodeName": "nowhere", "containers": [container]},
        }
        uid = self.plane.call("POST", f"{self.core}/pods", body)["metadata"]["uid"]
        fake = self.fleet.add(address, FakeBackend(uid, **backend))
        self.set_pod_status(name, phase="Running", podIP=address, podIPs=[{"ip": address}])
        return fake

    def set_pod_status(self, name: str, **status: Any) -> None:
        self.plane.call("PATCH", f"{self.core}/pods/{name}/status", {"status": status})

    def delete_pod(self, name: str) -> None:
        self.plane.call("DELETE", f"{self.core}/pods/{name}?gracePeriodSeconds=0")

    # FlexServModels

    def apply(self, name: str, **spec: Any) -> dict[str, Any]:
        """Create a FlexServModel."""
        body = {"apiVersion": "flexserv.io/v1alpha1", "kind": "FlexServModel", "metadata": {"name": name}}
        return self.plane.call("POST", self.models, {**body, "spec": spec})

    def edit(self, name: str, **spec: Any) -> dict[str, Any]:
        return self.plane.call("PATCH", f"{self.models}/{name}", {"spec": spec})

    def get(self, name: str) -> dict[str, Any]:
        return self.plane.call("GET", f"{self.models}/{name}")

    def delete(self, name: str) -> None:
        self.plane.call("DELETE", f"{self.models}/{name}")

    def exists(self, name: str) -> bool:
        try:
            self.get(name)
        except ApiRejected as rejected:
            if rejected.status == 404:
                return False
            raise
        return True

    def status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.get(name).get("status") or {}
        return status

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        conditions = {condition["type"]: condition for condition in self.status(name)["conditions"]}
        found: dict[str, Any] = conditions[kind]
        return found

    def reaches(
        self, name: str, phase: str, reason: str | None = None, timeout: float = PATIENCE_S
    ) -> dict[str, Any]:
        """Wait until the status has that phase (and reason of Ready) for the newest generation; return it."""

        def there() -> dict[str, Any] | None:
            model = self.get(name)
            status: dict[str, Any] = model.get("status") or {}
            ready = next((c for c in status.get("conditions", ()) if c["type"] == "Ready"), {})
            fits = (
                status.get("phase") == phase
                and status.get("observedGeneration") == model["metadata"]["generation"]
            )
            return status if fits and reason in (None, ready.get("reason")) else self._not_yet(status)

        return eventually(there, timeout)

    @staticmethod
    def _not_yet(status: Mapping[str, Any]) -> None:
        raise AssertionError(f"status is {dict(status)}")

    def events(self, name: str) -> list[dict[str, Any]]:
        items = self.plane.call("GET", f"{self.core}/events")["items"]
        return [event for event in items if event["involvedObject"]["name"] == name]

    def soon(self, probe: Callable[[], object], timeout: float = PATIENCE_S) -> None:
        """Wait until it is so."""
        eventually(probe, timeout)
