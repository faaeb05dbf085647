"""Name a process for good: a process id alone may mean somebody else later."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessName:
    """A process id with the moment it began (clock ticks after boot), which no later process shares."""

    pid: int
    began: int

    @property
    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        found = _look(self.pid)
        return found is not None and found == (self.began, False)

    def kill(self, number: signal.Signals, wait_seconds: float) -> bool:
        """Send a signal, if it is still that process, and wait for its end; False if it is still there."""
        if self.alive:
            os.kill(self.pid, number)
        limit = time.monotonic() + wait_seconds
        while self.alive:
            if time.monotonic() > limit:
                return False
            time.sleep(0.05)
        return True


def name_of(pid: int) -> ProcessName | None:
    """The lasting name of a process that runs now."""
    found = _look(pid)
    return None if found is None else ProcessName(pid, found[0])


def only_child(pid: int) -> int | None:
    """The process id of the one child, if there is one already."""
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(words[0]) if words else None


def running_program(name: str) -> list[int]:
    """The processes whose program has this name (15 characters are compared, all that the kernel keeps)."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() == name[:15]:
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _look(pid: int) -> tuple[int, bool] | None:
    """When the process began and whether it is a zombie."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(after_name[19]), after_name[0] == "Z"
