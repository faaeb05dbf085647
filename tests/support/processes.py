"""Kill what runs in a pod the hard way."""

import os
import signal
from pathlib import Path
from typing import Any

from kube import Kube


def kill_container(kube: Kube, pod: dict[str, Any]) -> None:
    """SIGKILL the container's first process where the node is this machine, else end it from inside.

    From inside, PID 1 cannot be killed: two SIGTERMs make the server exit at once.
    """
    processes = _host_processes(pod["metadata"]["uid"])
    if processes:
        os.kill(min(processes), signal.SIGKILL)
        return
    code = "import os, signal; os.kill(1, signal.SIGTERM); os.kill(1, signal.SIGTERM)"
    kube.kubectl("exec", pod["metadata"]["name"], "--", "python", "-c", code)


def _host_processes(pod_uid: str) -> list[int]:
    """Pids of the backend's server in the pod, as this machine sees them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            inside = pod_uid in (folder / "cgroup").read_text().replace("_", "-")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if inside and b"hf_transformers_backend" in command:
            found.append(int(folder.name))
    return found
