"""An enclosure: programs in namespaces of their own under one supervisor, which end together with it."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import plan as plans
from lab import report as reports
from lab.commands import environment, tail
from lab.errors import CommandError, MissingError, RefusedError
from lab.places import HACK, search_path
from lab.plan import Plan
from lab.processes import ProcessName, name_of, only_child
from lab.report import Report

_BIRTH_SECONDS = 20.0
_NAMESPACES = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child=SIGKILL", "--mount-proc"]


def require_root() -> None:
    """Raise MissingError unless we may make namespaces."""
    if os.geteuid() != 0:
        raise MissingError("not root: namespaces, mounts and cgroups need it; run this as root")


class Enclosure:
    """One enclosure with its record in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.report_file = folder / "report.json"
        self._record = folder / "enclosure.json"
        self._plan = folder / "plan.json"
        self._launcher: subprocess.Popen[bytes] | None = None

    @contextmanager
    def locked(self, wait_seconds: float = 600.0) -> Iterator[None]:
        """Keep other runs of these programs out. Raises RefusedError when one of them holds it too long."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        limit = time.monotonic() + wait_seconds
        with (self.folder.parent / f"{self.folder.name}.lock").open("w") as handle:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > limit:
                        raise RefusedError(
                            f"another run has held {handle.name} for {wait_seconds:.0f} s"
                        ) from error
                    time.sleep(0.2)
            yield

    @property
    def init(self) -> ProcessName | None:
        """Process 1 of the enclosure as seen from outside, if it is alive."""
        try:
            raw = json.loads(self._record.read_text())
        except FileNotFoundError:
            return None
        found = ProcessName(**raw)
        return found if found.alive else None

    @property
    def report(self) -> Report:
        """What the supervisor last told."""
        return reports.read(self.report_file)

    def start(self, plan: Plan, *, connect: Callable[[int], None] | None = None) -> None:
        """Start the supervisor with this plan.

        With `connect` the enclosure has a network of its own; `connect` gets the process id to join it to.
        Nothing runs before the record is written and the network stands; if we die before, so does it.
        """
        require_root()
        self.logs.mkdir(parents=True, exist_ok=True)
        plans.dump(plan, self._plan)
        self.report_file.unlink(missing_ok=True)
        network = ["--net"] if connect else []
        # A node of its own has no use for this shell's variables, least of all for its proxies.
        inherited = {"PATH": search_path(), "HOME": str(Path.home())} if connect else environment()
        supervisor = [sys.executable, "-m", "lab.supervisor", str(self._plan)]
        with (self.logs / "supervisor.log").open("ab") as log:
            launcher = subprocess.Popen(
                ["unshare", *_NAMESPACES, *network, *supervisor],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd="/", start_new_session=True,
                env={**inherited, "PYTHONPATH": str(HACK), "PYTHONDONTWRITEBYTECODE": "1"},
            )  # fmt: skip
        self._launcher = launcher  # outlives us, unless we stop it ourselves
        assert launcher.stdin is not None
        with launcher.stdin:
            init = self._await_birth(launcher)
            self._record.write_text(json.dumps({"pid": init.pid, "began": init.began}))
            if connect:
                connect(init.pid)
            launcher.stdin.write(b"go\n")

    def _await_birth(self, launcher: "subprocess.Popen[bytes]") -> ProcessName:
        limit = time.monotonic() + _BIRTH_SECONDS
        while time.monotonic() < limit and launcher.poll() is None:
            child = only_child(launcher.pid)
            name = name_of(child) if child else None
            if name is not None:
                return name
            time.sleep(0.02)
        launcher.kill()
        raise CommandError(f"no namespaces could be made on this machine:\n{self.log_tail('supervisor')}")

    def await_running(self, wait_seconds: float, tell: Callable[[str], None]) -> None:
        """Wait until all is ready, naming each component; CommandError holds the end of the right log."""
        limit = time.monotonic() + wait_seconds
        told: set[str] = set()
        while True:
            report, alive = self.report, self.init is not None
            for name, one in report.components.items():
                if one.state == "ready" and name not in told:
                    told.add(name)
                    tell(f"{name} is ready")
            if report.phase == "running" and alive:
                return
            if report.phase == "failed":
                raise CommandError(f"{report.reason}; the end of its log:\n{self.log_tail(report.culprit)}")
            if not alive:
                raise CommandError(
                    f"the supervisor is gone; the end of its log:\n{self.log_tail('supervisor')}"
                )
            if time.monotonic() > limit:
                raise CommandError(f"not everything runs after {wait_seconds:.0f} s; logs are in {self.logs}")
            time.sleep(0.1)

    def log_tail(self, component: str, lines: int = 20) -> str:
        """The end of a component's log, with the log's path."""
        path = self.logs / f"{component}.log"
        text = path.read_text(errors="replace") if path.exists() else "(no log)"
        return f"--- {path}\n{tail(text, lines)}"

    def stop(self, *, grace_seconds: float) -> None:
        """End everything inside, first asking for `grace_seconds` (0: at once)."""
        init = self.init
        if init is not None:
            if grace_seconds > 0:
                init.kill(signal.SIGTERM, grace_seconds)
            if not init.kill(signal.SIGKILL, 20.0):
                raise CommandError(f"process {init.pid} does not end; something in it is stuck in the kernel")
        if self._launcher is not None:
            self._launcher.wait(timeout=20.0)
        self._record.unlink(missing_ok=True)

    def forget(self) -> None:
        """Delete the folder with everything in it. Only for an enclosure that is dead."""
        if self.init is not None:
            raise RefusedError(f"{self.folder} belongs to a running enclosure")
        shutil.rmtree(self.folder, ignore_errors=False)
