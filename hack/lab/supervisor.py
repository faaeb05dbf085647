"""Process 1 of an enclosure: prepares its mounts, starts the programs in order, and tells how they stand.

It restarts nothing: a program that ended is logged and shown, and the next `up` starts afresh. Because it is
process 1 of its own PID namespace, its end - even by SIGKILL - is the end of every process in there.
"""

import os
import signal
import socket
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from lab import report as reports
from lab.enclosure_mounts import fix_kernel_settings, shield
from lab.plan import Component, Plan, Probe, load
from lab.report import ComponentReport, Report

_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}
_PROBE_SECONDS = 2.0


def answers(probe: Probe) -> bool:
    """Whether the probe succeeds now; never waits longer than two seconds."""
    try:
        if probe.unix:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(_PROBE_SECONDS)
                client.connect(probe.unix)
            return True
        headers = {"Authorization": f"Bearer {probe.token}"} if probe.token else {}
        context = ssl.create_default_context(cafile=probe.ca) if probe.ca else None
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(urllib.request.Request(probe.url, headers=headers), timeout=_PROBE_SECONDS):
            return True
    except (OSError, urllib.error.URLError):
        return False


class Supervisor:
    """Runs one plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._report = Report(components={one.name: ComponentReport() for one in plan.components})
        self._stop_asked = False

    def run(self) -> int:
        """Start everything, then watch until asked to stop; the exit status is 1 when the start failed."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        self._tell()
        try:
            for component in self._plan.components:
                self._start(component)
        except TimeoutError as error:
            self._report.phase, self._report.reason = "failed", str(error)
            self._tell()
            self._stop_all()
            return 1
        if not self._stop_asked:
            self._report.phase = "running"
            self._tell()
            print("everything runs", flush=True)
        while not self._stop_asked:
            self._pause(30.0)
        self._report.phase = "stopping"
        self._tell()
        self._stop_all()
        return 0

    def _start(self, component: Component) -> None:
        mine = self._report.components[component.name]
        begin = time.monotonic()
        mine.begin(self._spawn(component))
        self._tell()
        while not self._stop_asked and component.probe is not None and not answers(component.probe):
            self._pause(0.1)
            if mine.state == "exited":
                self._report.culprit = component.name
                raise TimeoutError(f"{component.name} ended with exit status {mine.exit_status}")
            if time.monotonic() - begin > component.ready_seconds:
                self._report.culprit = component.name
                raise TimeoutError(f"{component.name} does not answer after {component.ready_seconds:.0f} s")
        mine.state, mine.seconds_to_ready = "ready", round(time.monotonic() - begin, 2)
        print(f"{component.name} is ready after {mine.seconds_to_ready} s", flush=True)
        self._tell()

    def _spawn(self, component: Component) -> int:
        log = os.open(
            Path(self._plan.logs) / f"{component.name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            redirect = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
            return os.posix_spawnp(
                component.argv[0],
                component.argv,
                os.environ,
                file_actions=redirect,
                setsid=True,
                setsigmask=[],
            )
        except OSError as error:
            self._report.culprit = component.name
            raise TimeoutError(f"{component.name} cannot be started: {error}") from error
        finally:
            os.close(log)

    def _pause(self, seconds: float) -> None:
        """Wait for a signal, then take note of it and of every process that ended (ours or an orphan)."""
        got = signal.sigtimedwait(_WATCHED, seconds)
        if got is not None and got.si_signo in (signal.SIGTERM, signal.SIGINT):
            self._stop_asked = True
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._note_end(pid, os.waitstatus_to_exitcode(status))

    def _note_end(self, pid: int, exit_status: int) -> None:
        for name, one in self._report.components.items():
            if one.pid == pid and one.state != "exited":
                one.state, one.exit_status = "exited", exit_status
                print(f"{name} ended with exit status {exit_status}", flush=True)
                self._tell()

    def _stop_all(self) -> None:
        for component in reversed(self._plan.components):
            mine = self._report.components[component.name]
            limit = time.monotonic() + self._plan.stop_seconds
            if mine.pid is not None and mine.state != "exited":
                os.kill(mine.pid, signal.SIGTERM)
            while mine.pid is not None and mine.state != "exited" and time.monotonic() < limit:
                self._pause(0.1)

    def _tell(self) -> None:
        reports.write(self._report, Path(self._plan.report))


def main() -> int:
    """Wait for the word to go (end of file without it: whoever started us is gone), then run the plan."""
    if sys.stdin.readline().strip() != "go":
        return 1
    plan = load(Path(sys.argv[1]))
    shield(plan.shielded, plan.kept)
    fix_kernel_settings(plan.fixed_kernel_settings)
    return Supervisor(plan).run()


if __name__ == "__main__":
    sys.exit(main())
