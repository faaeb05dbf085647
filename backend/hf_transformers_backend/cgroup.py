"""Memory of the container that this process runs in: the cgroup limit and what counts against it.

Reads cgroup v1 and v2 below a root folder (tests pass one with canned files). No limit, or files that do not
exist, mean None: the node's own memory is then the bound.

What counts is what the kernel cannot reclaim: anonymous and shared memory, kernel memory, and the file pages
that this process has mapped, as far as they are charged here (a page cache that another container filled is
not). `usage - inactive_file`, the usual working set, does not serve: mapped weights become *active* file
pages when they are unmapped, so it rises when a model goes and stays up.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """One cgroup level with a limit, in bytes. `unreclaimable_bytes` is what decisions are made with."""

    limit_bytes: int
    usage_bytes: int
    working_set_bytes: int
    unreclaimable_bytes: int

    @property
    def available_bytes(self) -> int:
        return max(self.limit_bytes - self.unreclaimable_bytes, 0)


@dataclass(frozen=True, slots=True)
class _Hierarchy:
    """Where the memory controller's folders of this process lie, from its own cgroup up to the mount."""

    version: int
    mount: Path
    leaf: Path

    def levels(self) -> list[Path]:
        levels = [self.leaf]
        while levels[-1] != self.mount:
            levels.append(levels[-1].parent)
        return levels


def read_container_memory(node_total_bytes: int, root: Path = Path("/")) -> ContainerMemory | None:
    """The level with the least memory left among those whose limit is below `node_total_bytes`, or None."""
    try:
        hierarchy = _find_hierarchy(root)
        if hierarchy is None:
            return None
        mapped = _mapped_file_bytes(root)
    except OSError:
        return None
    read_level = _read_v1 if hierarchy.version == 1 else _read_v2
    bound = [
        memory
        for level in hierarchy.levels()
        if (memory := read_level(level, mapped)) is not None and memory.limit_bytes < node_total_bytes
    ]
    return min(bound, key=lambda memory: memory.available_bytes, default=None)


def _find_hierarchy(root: Path) -> _Hierarchy | None:
    paths: dict[int, str] = {}
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            paths[1] = path
        elif number == "0" and not controllers:
            paths[2] = path
    mounts: dict[int, tuple[str, str]] = {}
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mount_root, mount_point = before.split()[3:5]
        kind, _source, options = after.split(maxsplit=2)
        if kind == "cgroup" and "memory" in options.split(","):
            mounts[1] = (mount_root, mount_point)
        elif kind == "cgroup2":
            mounts.setdefault(2, (mount_root, mount_point))
    # On a hybrid host both exist; the memory controller is then bound to v1.
    for version in (1, 2):
        if version in paths and version in mounts:
            mount_root, mount_point = mounts[version]
            mount = root / mount_point.lstrip("/")
            return _Hierarchy(version, mount, _own_folder(mount, mount_root, paths[version]))
    return None


def _own_folder(mount: Path, mount_root: str, path: str) -> Path:
    """The process's cgroup below `mount`; the mount itself where a cgroup namespace hides the path to it."""
    own = PurePosixPath(path)
    if ".." in own.parts or not own.is_relative_to(mount_root):
        return mount
    folder = mount / own.relative_to(mount_root)
    return folder if folder.is_dir() else mount


def _mapped_file_bytes(root: Path) -> int:
    for line in (root / "proc/self/status").read_text().splitlines():
        if line.startswith("RssFile:"):
            return int(line.split()[1]) * 1024
    return 0


def _read_v2(level: Path, mapped_bytes: int) -> ContainerMemory | None:
    # memory.high only throttles, but a process above it all but stands still: it is a limit to us.
    limits = [
        limit for name in ("memory.max", "memory.high") if (limit := _read_limit(level / name)) is not None
    ]
    if not limits:
        return None
    try:
        usage = int((level / "memory.current").read_text())
        stat = _read_stat(level / "memory.stat")
    except (OSError, ValueError):
        return None
    if "kernel" in stat:  # Linux 5.18 and later
        kernel = stat["kernel"] - stat.get("slab_reclaimable", 0)
    else:
        parts = ("slab_unreclaimable", "kernel_stack", "pagetables", "percpu")
        kernel = sum(stat.get(name, 0) for name in parts)
    kernel += stat.get("sock", 0)
    mapped = min(mapped_bytes, stat.get("file_mapped", mapped_bytes))
    unreclaimable = stat.get("anon", 0) + stat.get("shmem", 0) + kernel + mapped
    return _memory(min(limits), usage, stat.get("inactive_file", 0), unreclaimable)


def _read_v1(level: Path, mapped_bytes: int) -> ContainerMemory | None:
    limit = _read_limit(level / "memory.limit_in_bytes")
    if limit is None:
        return None
    try:
        usage = int((level / "memory.usage_in_bytes").read_text())
        stat = _read_stat(level / "memory.stat")
    except (OSError, ValueError):
        return None
    # v1 does not tell reclaimable kernel memory apart: all of it counts, the safe side.
    kernel = _read_limit(level / "memory.kmem.usage_in_bytes") or 0
    mapped = min(mapped_bytes, stat.get("total_mapped_file", mapped_bytes))
    unreclaimable = stat.get("total_rss", 0) + stat.get("total_shmem", 0) + kernel + mapped
    return _memory(limit, usage, stat.get("total_inactive_file", 0), unreclaimable)


def _memory(limit: int, usage: int, inactive_file: int, unreclaimable: int) -> ContainerMemory:
    # The files are not read at one instant: no more than what is charged can be in use.
    return ContainerMemory(limit, usage, max(usage - inactive_file, 0), min(unreclaimable, usage))


def _read_limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
        return None if text == "max" else int(text)
    except (OSError, ValueError):
        return None


def _read_stat(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}
