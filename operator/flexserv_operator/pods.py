"""Services and pods, as far as the operator cares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STARTS = ("ContainerCreating", "PodInitializing")
"""Why a container may wait for a while."""


@dataclass(frozen=True)
class Service:
    """A Service, as far as it finds pods."""

    name: str
    selector: Mapping[str, str]
    target_port: int | str


@dataclass(frozen=True)
class Pod:
    """A pod, as far as the operator cares; two equal values mean that nothing of interest changed."""

    name: str
    uid: str
    address: str | None
    labels: Mapping[str, str]
    ports: Mapping[str, int]
    containers: tuple[str, ...]
    """The ids of the running containers: another one means a restart."""
    ready: bool
    starting: bool
    """Not running yet, or a container of it did not pass its startup probe yet."""
    trouble: str | None
    """Why a container waits that should run, such as CrashLoopBackOff."""
    oom_killed: bool
    gone: bool
    """Failed, finished or terminating."""

    def url(self, service: Service) -> str | None:
        """Where the backend in this pod listens; None while it has no address or no such port."""
        target = service.target_port
        port = target if isinstance(target, int) else self.ports.get(target)
        if self.address is None or port is None:
            return None
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{port}"


def read_service(body: Mapping[str, Any]) -> Service:
    """The value of a Service; of several ports the one called http, else the first."""
    spec = body["spec"]
    ports = spec.get("ports") or [{"port": 80}]
    port = next((port for port in ports if port.get("name") == "http"), ports[0])
    return Service(
        body["metadata"]["name"], dict(spec.get("selector") or {}), port.get("targetPort") or port["port"]
    )


def read_pod(body: Mapping[str, Any]) -> Pod:
    """The value of a pod."""
    meta, status = body["metadata"], body.get("status") or {}
    containers = status.get("containerStatuses") or []
    waits = [((container.get("state") or {}).get("waiting") or {}).get("reason") for container in containers]
    last = [(container.get("lastState") or {}).get("terminated") or {} for container in containers]
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        address=status.get("podIP"),
        labels=dict(meta.get("labels") or {}),
        ports={
            port["name"]: port["containerPort"]
            for container in body["spec"].get("containers") or []
            for port in container.get("ports") or []
            if "name" in port
        },
        containers=tuple(container.get("containerID") or "" for container in containers),
        ready=any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in status.get("conditions") or []
        ),
        starting=status.get("phase") == "Pending"
        or any(container.get("started") is False for container in containers),
        trouble=next((reason for reason in waits if reason and reason not in _STARTS), None),
        oom_killed=any(ended.get("reason") == "OOMKilled" for ended in last),
        gone="deletionTimestamp" in meta or status.get("phase") in ("Failed", "Succeeded"),
    )
