"""The part of the cgroup tree that is ours, in version 1 and 2."""

import os
import time
from pathlib import Path

from lab.errors import MissingError

_ROOT = Path("/sys/fs/cgroup")
_REMOVE_SECONDS = 60.0


def hierarchies() -> list[Path]:
    """The roots in which a cgroup must be made: one in version 2, one per controller in version 1."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    found = sorted(one for one in _ROOT.glob("*") if (one / "cgroup.procs").exists() and not one.is_symlink())
    if not found:
        raise MissingError("no cgroups are mounted under /sys/fs/cgroup: containers cannot run here")
    return found


def create(name: str) -> None:
    """Make the cgroup everywhere, with the processors and memory nodes of its parent."""
    for root in hierarchies():
        ours = root / name
        ours.mkdir(exist_ok=True)
        for setting in ("cpuset.mems", "cpuset.cpus"):
            if (root / setting).exists() and not (ours / setting).read_text().strip():
                (ours / setting).write_text((root / setting).read_text())


def remove(name: str) -> list[str]:
    """Remove the cgroup and those below it, the deepest first; returns what could not be removed.

    The kernel may need a moment after the last process ended.
    """
    limit = time.monotonic() + _REMOVE_SECONDS
    while (left := _sweep(name)) and time.monotonic() < limit:
        time.sleep(0.1)
    return left


def _sweep(name: str) -> list[str]:
    left = []
    for root in hierarchies():
        for folder, _, _ in os.walk(root / name, topdown=False):
            try:
                Path(folder).rmdir()
            except FileNotFoundError:
                continue
            except OSError as error:
                left.append(f"{folder}: {error.strerror}")
    return left
