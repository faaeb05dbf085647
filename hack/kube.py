"""kubectl and helm against one kubeconfig and one namespace, for the demo and the e2e tests."""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("FLEXSERV_CACHE", Path.home() / ".cache" / "flexserv"))


class CommandFailed(RuntimeError):
    """kubectl or helm said no; the message is what it said."""


class Kube:
    """One namespace of one cluster. Nothing here reads or writes a kubeconfig other than the one given."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self._env = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "PATH": os.pathsep.join([str(CACHE / "bin"), os.environ["PATH"]]),
            "HELM_CONFIG_HOME": str(CACHE / "helm"),
            "HELM_CACHE_HOME": str(CACHE / "helm"),
            "HELM_DATA_HOME": str(CACHE / "helm"),
        }

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 90) -> str:
        """Run kubectl in the namespace and return what it printed."""
        return self._call(["kubectl", "--namespace", self.namespace, *arguments], stdin, timeout)

    def helm(self, *arguments: str, timeout: float = 600) -> str:
        """Run helm in the namespace and return what it printed."""
        return self._call(["helm", "--namespace", self.namespace, *arguments], None, timeout)

    def get(self, kind: str, *arguments: str) -> dict[str, Any]:
        """One object, or a List of them, as the API server gives it."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, *arguments, "-o", "json"))
        return found

    def apply(self, manifest: str) -> str:
        """Create or change what the YAML text describes."""
        return self.kubectl("apply", "-f", "-", stdin=manifest)

    def delete_namespace(self, timeout: float = 120) -> None:
        """Delete the namespace and wait until it is gone."""
        self.kubectl(
            "delete",
            "namespace",
            self.namespace,
            "--ignore-not-found",
            "--wait",
            f"--timeout={timeout:.0f}s",
            timeout=timeout + 10,
        )

    def create_namespace(self, **labels: str) -> None:
        """Create the namespace, or leave it as it is."""
        meta = {
            "name": self.namespace,
            "labels": {key.replace("__", "/"): value for key, value in labels.items()},
        }
        self.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": meta}))

    @contextlib.contextmanager
    def forward(self, target: str, port: int | str) -> Iterator[str]:
        """`kubectl port-forward` while the block runs; gives the base URL on 127.0.0.1."""
        command = [
            "kubectl",
            "--namespace",
            self.namespace,
            "port-forward",
            "--address",
            "127.0.0.1",
            target,
            f":{port}",
        ]
        process = subprocess.Popen(
            command, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            match = re.search(r"127\.0\.0\.1:(\d+)", line)
            if match is None:
                raise CommandFailed(f"port-forward to {target}: {line.strip()}")
            yield f"http://127.0.0.1:{match[1]}"
        finally:
            process.terminate()
            process.wait(timeout=10)
            process.stdout.close()

    def _call(self, command: list[str], stdin: str | None, timeout: float) -> str:
        result = subprocess.run(
            command, env=self._env, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )
        if result.returncode != 0:
            raise CommandFailed(f"{' '.join(command)}: {result.stderr.strip() or result.stdout.strip()}")
        return result.stdout


def kubeconfig() -> Path:
    """The kubeconfig of the running cluster, as `hack/cluster` gives it."""
    result = subprocess.run(
        [str(ROOT / "hack" / "cluster"), "kubeconfig"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if result.returncode != 0:
        raise CommandFailed(f"{result.stderr.strip() or 'no cluster'}: start one with `make cluster`")
    return Path(result.stdout.strip())
