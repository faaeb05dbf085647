"""FlexServ installed in one namespace: the steps that the demo tells and the e2e tests check."""

import dataclasses
import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kube import CACHE, ROOT, CommandFailed, Kube

SAMPLES = ROOT / "hack" / "samples"
CRD = "flexservmodels.flexserv.io"
CHART = ROOT / "charts" / "flexserv"
VALUES = SAMPLES / "demo-values.yaml"

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Installation:
    """One Helm release, named `flexserv`, with the sample models on a claim."""

    kube: Kube
    release: str = "flexserv"

    def prepare(self) -> None:
        """An empty namespace that enforces the `restricted` pod standard, and the claim with the models."""
        self.kube.delete_namespace()
        self.kube.kubectl("delete", "persistentvolume", self._volume, "--ignore-not-found", "--timeout=60s")
        if not self._models_elsewhere():
            self.kube.kubectl("delete", "crd", CRD, "--ignore-not-found", "--timeout=60s")
        self.kube.create_namespace(**{"pod-security.kubernetes.io__enforce": "restricted"})
        template = (SAMPLES / "models-volume.yaml").read_text()
        self.kube.apply(
            template.replace("__MODELS_FOLDER__", str(CACHE / "models")).replace(
                "__NAMESPACE__", self.kube.namespace
            )
        )
        # A pod that comes before its claim is bound may miss that: the scheduler looks again after 5 minutes.
        bound = "--for=jsonpath={.status.phase}=Bound"
        self.kube.kubectl("wait", bound, "persistentvolumeclaim/flexserv-models", "--timeout=60s")

    def install(self, *arguments: str, chart: Path = CHART, values: Path = VALUES) -> str:
        """`helm upgrade --install`, waiting until every pod is Ready; returns the notes."""
        return self.kube.helm(
            "upgrade", "--install", self.release, str(chart), "--values", str(values),
            *image_values(), *self._crd_values(), *arguments, "--wait", "--timeout", "5m",
        )  # fmt: skip

    def uninstall(self) -> None:
        """`helm uninstall`, waiting until its objects are gone."""
        self.kube.helm("uninstall", self.release, "--ignore-not-found", "--wait", "--timeout", "2m")

    def remove(self) -> None:
        """Uninstall the release and delete the namespace and the volume with it."""
        self.uninstall()
        self.kube.delete_namespace()
        self.kube.kubectl("delete", "persistentvolume", self._volume, "--ignore-not-found", "--timeout=60s")

    def apply_sample(self, name: str) -> None:
        """Apply one file of hack/samples."""
        self.kube.kubectl("apply", "-f", str(SAMPLES / name))

    def statuses(self) -> dict[str, dict[str, Any]]:
        """The status of every FlexServModel by name; {} where none was written yet."""
        return {item["metadata"]["name"]: item.get("status", {}) for item in self.kube.get("fsm")["items"]}

    def await_phases(self, wanted: dict[str, str], timeout: float = 120) -> dict[str, dict[str, Any]]:
        """Wait until each named model has the phase, and return all statuses."""

        def reached() -> dict[str, dict[str, Any]] | None:
            now = self.statuses()
            return (
                now
                if all(now.get(name, {}).get("phase") == phase for name, phase in wanted.items())
                else None
            )

        return await_true(reached, timeout, lambda: f"phases are {self._phases()}, wanted {wanted}")

    def backend_pod(self) -> dict[str, Any]:
        """The newest backend pod that is not going away."""
        pods = self.kube.get("pods", "-l", "app.kubernetes.io/component=backend")["items"]
        alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        if not alive:
            raise CommandFailed("there is no backend pod")
        newest: dict[str, Any] = max(alive, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return newest

    def operator_memory_bytes(self) -> int:
        """Resident memory of the operator's process, read inside its container."""
        text = self.kube.kubectl(
            "exec",
            f"deployment/{self.release}-operator",
            "--",
            "python",
            "-c",
            "print(open('/proc/1/status').read())",
        )
        return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS"))

    def _models_elsewhere(self) -> bool:
        """Whether another namespace has FlexServModels: then the CRD must stay as it is."""
        if CRD not in self.kube.kubectl("get", "crd", "-o", "name"):
            return False
        items = json.loads(self.kube.kubectl("get", CRD, "--all-namespaces", "-o", "json"))["items"]
        return any(item["metadata"]["namespace"] != self.kube.namespace for item in items)

    def _crd_values(self) -> Sequence[str]:
        """One CRD serves the whole cluster: a second release leaves it to the first."""
        return ("--set", "crds.enabled=false") if self._models_elsewhere() else ()

    @property
    def _volume(self) -> str:
        return f"flexserv-models-{self.kube.namespace}"

    def _phases(self) -> str:
        return json.dumps({name: status.get("phase") for name, status in self.statuses().items()})


def image_values() -> Sequence[str]:
    """The --set arguments that name the images built from this tree."""
    result = subprocess.run(
        [str(ROOT / "hack" / "images"), "--names"], capture_output=True, text=True, timeout=60, check=True
    )
    values: list[str] = []
    for line in result.stdout.split():
        repository, _, tag = line.rpartition(":")
        part = Path(repository).name
        values += ["--set", f"{part}.image.repository={repository}", "--set", f"{part}.image.tag={tag}"]
    return values


def await_true(probe: Callable[[], T | None], timeout: float, describe: Callable[[], str]) -> T:
    """Probe twice a second until the result is truthy; after `timeout` seconds fail with the description.

    A command that fails counts as "not yet": a busy API server may refuse one of many.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            if value := probe():
                return value
        except (CommandFailed, subprocess.TimeoutExpired) as error:
            if time.monotonic() > deadline:
                raise CommandFailed(f"not reached in {timeout:.0f} s: {error}") from error
        if time.monotonic() > deadline:
            raise CommandFailed(f"not reached in {timeout:.0f} s: {describe()}")
        time.sleep(0.5)
