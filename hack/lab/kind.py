"""The cluster in docker containers, by kind (https://kind.sigs.k8s.io), as its documentation shows."""

import json
from pathlib import Path

from lab import docker_engine
from lab.commands import find, run
from lab.errors import MissingError
from lab.places import models, state
from lab.progress import say, stage

_NAME = "flexserv"
_SECONDS = 900.0


class KindCluster:
    """The provider `kind`."""

    def __init__(self) -> None:
        self._folder = state() / "kind"
        self._kubeconfig = self._folder / "kubeconfig"

    def up(self) -> None:
        """Create the cluster, unless it is there."""
        if self._exists():
            say("the cluster runs already")
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        models().mkdir(parents=True, exist_ok=True)
        config = self._folder / "config.yaml"
        config.write_text(json.dumps(configuration(models()), indent=1) + "\n")
        with stage("creating the kind cluster"):
            self._kind(
                "create", "cluster", f"--config={config}", f"--kubeconfig={self._kubeconfig}", "--wait=180s"
            )

    def down(self) -> None:
        """Delete the cluster."""
        self._kind("delete", "cluster", f"--name={_NAME}", f"--kubeconfig={self._kubeconfig}")
        self._kubeconfig.unlink(missing_ok=True)

    def load(self, images: list[str]) -> None:
        """Bring images (names, or archive files) into the node."""
        for image in images:
            what = "image-archive" if Path(image).is_file() else "docker-image"
            with stage(f"loading {image}"):
                self._kind("load", what, image, f"--name={_NAME}")

    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        if not self._kubeconfig.exists():
            raise MissingError("there is no cluster: start one with: hack/cluster up --provider kind")
        return self._kubeconfig

    def status(self) -> tuple[bool, str]:
        """Whether the cluster is there."""
        exists = self._exists()
        return exists, f"cluster: {'running' if exists else 'not running'} (kind)"

    def _exists(self) -> bool:
        return _NAME in self._kind("get", "clusters").split()

    def _kind(self, *words: str) -> str:
        kind = find("kind", "see https://kind.sigs.k8s.io/docs/user/quick-start/#installation")
        return run([kind, *words], timeout=_SECONDS, env=docker_engine.environment())


def configuration(models_folder: Path) -> dict[str, object]:
    """One node that sees the folder of models at its own path."""
    mount = {"hostPath": str(models_folder), "containerPath": str(models_folder), "readOnly": True}
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": _NAME,
        "nodes": [{"role": "control-plane", "extraMounts": [mount]}],
    }
