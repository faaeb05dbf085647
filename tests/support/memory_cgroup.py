"""A real memory cgroup (v1 or v2, root needed) with a limit that the kernel enforces on one process tree."""

import os
from pathlib import Path
from types import TracebackType

MOUNT = Path("/sys/fs/cgroup")


class MemoryCgroup:
    """`command` is what a program has to be started with to run inside it."""

    def __init__(self, limit_bytes: int) -> None:
        self._v2 = (MOUNT / "cgroup.controllers").exists()
        parent = MOUNT if self._v2 else MOUNT / "memory"
        self.folder = parent / f"flexserv-test-{os.getpid()}"
        self._limit = limit_bytes

    @property
    def command(self) -> list[str]:
        return ["/bin/sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$0" "$@"']

    @property
    def limit_bytes(self) -> int:
        return self._limit

    @limit_bytes.setter
    def limit_bytes(self, value: int) -> None:
        """The kernel refuses a limit that it cannot reach by reclaiming."""
        (self.folder / ("memory.max" if self._v2 else "memory.limit_in_bytes")).write_text(str(value))
        self._limit = value

    @property
    def oom_kills(self) -> int:
        """How many processes the kernel has killed for lack of memory."""
        text = (self.folder / ("memory.events" if self._v2 else "memory.oom_control")).read_text()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")))

    def __enter__(self) -> "MemoryCgroup":
        if self._v2:
            (MOUNT / "cgroup.subtree_control").write_text("+memory")
        self.folder.mkdir()
        self.limit_bytes = self._limit
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.folder.rmdir()
