"""Whether a cluster of ours may be started on this machine. Deciding is apart from looking."""

from dataclasses import dataclass
from pathlib import Path

from lab.commands import run, succeeds
from lab.processes import running_program

_REMEDY = "use --provider kind, which keeps everything in docker containers"
_DOCKER_CE = ["docker-ce", "containerd.io"]


@dataclass(frozen=True)
class Neighbors:
    """What else lives here that a second node could disturb."""

    kubelets: list[int]
    docker_engines: list[int]
    docker_packages: list[str]


def reason(neighbors: Neighbors) -> str | None:
    """Why not, and what to do; None if nothing speaks against it."""
    if neighbors.kubelets:
        return f"a kubelet runs on this machine (process {neighbors.kubelets[0]}): {_REMEDY}"
    if neighbors.docker_packages:
        return f"Docker CE is installed on this machine ({', '.join(neighbors.docker_packages)}): {_REMEDY}"
    if neighbors.docker_engines:
        return f"a docker engine runs on this machine (process {neighbors.docker_engines[0]}): {_REMEDY}"
    return None


def look() -> Neighbors:
    """See who is here. Processes in other PID namespaces (kind's, ours) are enclosed and do not count."""
    return Neighbors(
        kubelets=[pid for pid in running_program("kubelet") if _beside_us(pid)],
        docker_engines=[pid for pid in running_program("dockerd") if _beside_us(pid)],
        docker_packages=[name for name in _DOCKER_CE if _installed(name)],
    )


def _beside_us(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


def _installed(package: str) -> bool:
    if not Path("/var/lib/dpkg/status").exists():
        return False
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return succeeds(query, timeout=30) and run(query, timeout=30).strip() == "installed"
