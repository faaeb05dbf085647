"""Where things are kept: a cache that may be deleted at any time, and the state of what runs now."""

import hashlib
import os
from pathlib import Path

HACK = Path(__file__).resolve().parent.parent


def cache() -> Path:
    """The folder for everything that can be made again (tools, images, models)."""
    return Path(os.environ.get("FLEXSERV_CACHE") or Path.home() / ".cache" / "flexserv").absolute()


def state() -> Path:
    """The folder for what is running: process records, sockets, kubeconfig, logs, the cluster's data."""
    return Path(os.environ.get("FLEXSERV_STATE") or Path.home() / ".local" / "state" / "flexserv").absolute()


def binaries() -> Path:
    """The one folder to put on PATH."""
    return cache() / "bin"


def models() -> Path:
    """The small real models, mounted by pods at this very path of the node."""
    return cache() / "models"


def debian() -> Path:
    """The root of the extracted Debian packages."""
    return cache() / "debian"


def search_path() -> str:
    """PATH with our tools first and the usual system folders last (a login shell may lack the sbin ones)."""
    ours = [binaries(), debian() / "usr/bin", debian() / "usr/sbin"]
    system = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return os.pathsep.join([*map(str, ours), *os.environ.get("PATH", "").split(os.pathsep), *system])


def mark() -> str:
    """Eight characters that are this state folder's own: two folders never share a device or a cgroup."""
    return hashlib.sha256(str(state()).encode()).hexdigest()[:8]
