"""The GPU's memory as another process sees it, and another process that takes of it."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.errors import CommandError, MissingError
from lab.places import HACK

SECONDS = 90


class Probe:
    """Runs small programs with the backend's Python."""

    def __init__(self, python: Path) -> None:
        self._python = str(python)
        self._environment = {**os.environ, "PYTHONPATH": str(HACK), "HF_HUB_OFFLINE": "1"}

    def facts(self) -> dict[str, Any]:
        """See memory_probe.facts. Raises MissingError where that Python has no torch."""
        done = subprocess.run(
            [self._python, "-m", "gpucheck.memory_probe"],
            env=self._environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise MissingError(
                f"{self._python} cannot run the backend ({last}): run hack/venv, or name --python"
            )
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return facts

    def make_models(self, folder: Path) -> None:
        """The models of the checks."""
        done = subprocess.run(
            [self._python, "-m", "gpucheck.made_models", str(folder)],
            env=self._environment, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise CommandError(f"the models could not be made: {done.stderr[-1000:]}")

    @contextmanager
    def held(self, size_bytes: int) -> Iterator[None]:
        """A neighbor that holds so much GPU memory for the block."""
        command = [self._python, "-m", "gpucheck.memory_probe", str(size_bytes)]
        neighbor = subprocess.Popen(
            command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert neighbor.stdin is not None and neighbor.stdout is not None
        try:
            if not neighbor.stdout.readline():
                raise CommandError("the neighbor could not take its memory")
            yield
        finally:
            neighbor.stdin.close()
            neighbor.stdout.close()
            neighbor.kill()
            neighbor.wait()
