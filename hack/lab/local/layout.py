"""Where the node keeps its things and what it is called: the one place for names, addresses and ports."""

from dataclasses import dataclass
from pathlib import Path

from lab.places import mark, state

NODE = "flexserv"
POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
API_PORT = 6443
KUBELET_PORT = 10250
ETCD_URL = "http://127.0.0.1:2379"
PAUSE_IMAGE = "docker.io/flexserv/pause:1"
USERS = {
    "admin": ("admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", ""),
    "kube-scheduler": ("system:kube-scheduler", ""),
    "kube-proxy": ("system:kube-proxy", ""),
    "kubelet": (f"system:node:{NODE}", "system:nodes"),
}
"""Who may talk to the API server: user name and group, each with a random token of its own."""


@dataclass(frozen=True)
class Layout:
    """One node: its folder, and the two ends of the cable between this machine and it."""

    folder: Path
    host_address: str = ""
    node_address: str = ""

    @property
    def device(self) -> str:
        """This machine's end of the cable."""
        return f"fs-{mark()}"

    @property
    def cgroup(self) -> str:
        """The cgroup under which all pods run."""
        return f"flexserv-{mark()}"

    @property
    def api_url(self) -> str:
        """The API server, reachable from this machine and from inside only."""
        return f"https://{self.node_address}:{API_PORT}"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd listens; visible from outside for loading images."""
        return self.folder / "containerd.sock"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.folder / "kubeconfig"

    @property
    def volume_plugins(self) -> Path:
        """Empty; without it kubelet and controller manager would make a folder in /usr/libexec."""
        return self.folder / "volume-plugins"

    def kubeconfig_of(self, user: str) -> Path:
        """The kubeconfig of a component."""
        return self.kubeconfig if user == "admin" else self.pki / f"{user}.kubeconfig"

    def config_of(self, component: str) -> Path:
        """The configuration file of a component."""
        return self.folder / "config" / component


def at_default_place() -> Layout:
    """The layout of the one cluster that this state folder has; the addresses are chosen at its start."""
    return Layout(state() / "cluster")
