"""hack/gpu-check on a machine without a GPU: it says so, and what it would need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[3] / "hack" / "gpu-check"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_without_a_gpu_it_ends_with_a_status_of_its_own_and_one_line() -> None:
    done = run("--python", sys.executable)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpu-check: there is no GPU here")
    assert len(done.stderr.splitlines()) == 1


def test_a_python_without_the_backends_packages_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho No module named torch >&2\nexit 1\n")
    python.chmod(0o755)
    done = run("--python", str(python))
    assert done.returncode == 1
    assert "No module named torch" in done.stderr and "run hack/venv" in done.stderr


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("no-such-check", 2)])
def test_the_checks_are_named(argument: str, status: int) -> None:
    done = run(argument)
    assert done.returncode == status
    assert "memory, eviction, sticky, load, compile, batching" in " ".join(
        (done.stdout + done.stderr).split()
    )
