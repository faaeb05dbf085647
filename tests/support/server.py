"""The real backend as a subprocess, started by path the way a user would."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import httpx

from tests.support.api_document import check_documented
from tests.support.eventually import eventually

PROGRAM = Path(__file__).parents[2] / "backend" / "hf_transformers_backend" / "backend_server.py"
START_SECONDS = 90.0
STOP_SECONDS = 90.0
_LISTENING = re.compile(r"listening on (http://[^\s\"]+)")


class RunningServer:
    """Starts on a free port, waits for /health, and stops with SIGTERM, which must end it with exit code 0.

    `flags` are the command line; `env` is added to the environment, from which other FLEXSERV_ settings are
    removed. The log is shown when the test or the stop fails. `program` stands in for the real one;
    `inside` is a command that starts another one, such as a cgroup's.
    """

    def __init__(
        self,
        *flags: str,
        env: Mapping[str, str] | None = None,
        expected_exit: int | None = 0,
        program: Path = PROGRAM,
        inside: Sequence[str] = (),
    ) -> None:
        self._flags = flags
        self._program = program
        self._inside = inside
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("FLEXSERV_")}
        self._env |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", **(env or {})}
        self._expected_exit = expected_exit
        self._terminated = False

    def __enter__(self) -> "RunningServer":
        self._log_file = tempfile.TemporaryFile(mode="w+b")
        self.process = subprocess.Popen(
            [*self._inside, sys.executable, str(self._program), "--port", "0", *self._flags],
            env=self._env,
            stdout=self._log_file,
            stderr=subprocess.STDOUT,
        )
        try:
            self.base_url = eventually(self._address, START_SECONDS)
            self.client = httpx.Client(
                base_url=self.base_url, timeout=60, event_hooks={"response": [check_documented]}
            )
            eventually(lambda: self.client.get("/health").is_success, START_SECONDS)
        except BaseException:
            self._end_process()
            print(self.log())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        code = self.stop()
        log = self.log()
        self._log_file.close()
        if error is not None:
            print(log)
        elif self._expected_exit is not None:
            assert code == self._expected_exit, (
                f"exit code {code}, expected {self._expected_exit}; log:\n{log}"
            )

    def stop(self) -> int:
        """Send SIGTERM, unless that was done, and return the exit code; one that hangs is killed (-9)."""
        self.terminate()
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._end_process()
            return self.process.returncode

    def terminate(self) -> None:
        """Send SIGTERM once, and do not wait: a second one would end the server at once."""
        if not self._terminated and self.process.poll() is None:
            self._terminated = True
            self.process.send_signal(signal.SIGTERM)

    def log(self) -> str:
        """Everything that the server has written so far."""
        return os.pread(self._log_file.fileno(), 10_000_000, 0).decode(errors="replace")

    def resident_bytes(self) -> int:
        """The process's resident set size."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]

    def wait_until_ready(self, timeout: float = 120.0) -> None:
        """Wait for readiness: the default models are in."""
        eventually(lambda: self.client.get("/v1/flexserv/health").is_success, timeout)

    def _address(self) -> str | None:
        if self.process.poll() is not None:
            raise SystemExit(f"the server ended with {self.process.returncode}:\n{self.log()}")
        found = _LISTENING.search(self.log())
        return None if found is None else found[1]

    def _end_process(self) -> None:
        self.process.kill()
        self.process.wait()
