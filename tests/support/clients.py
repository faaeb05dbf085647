"""Other people's clients, run as their own processes from .venv-clients, with no way to the network."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-clients" / "bin"
TIMEOUT_S = 100
# Nothing listens there: what would leave the machine fails at once instead of being tried.
NOWHERE = "http://127.0.0.1:9"
OFFLINE = {
    "HTTP_PROXY": NOWHERE,
    "HTTPS_PROXY": NOWHERE,
    "NO_PROXY": "127.0.0.1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # litellm fetches its list of prices when it is imported, unless it is told to take its own.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
}


def program(name: str) -> str:
    """The path of a client's program; without it the test fails and says how to get it."""
    path = FOLDER / name
    if not path.exists():
        pytest.fail(f"there is no {path}: run `hack/venv --clients`")
    return str(path)


def run(
    *command: str | Path,
    env: Mapping[str, str] | None = None,
    text: str | None = None,
    timeout: float = TIMEOUT_S,
) -> str:
    """What the command printed. One that fails fails the test, with all that it said."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    done = subprocess.run(
        [str(part) for part in command],
        env={**kept, **OFFLINE, **(env or {})},
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def results_of(script: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Any:
    """What a Python program of the tests, run with the clients, prints as JSON in its last line."""
    return json.loads(run(program("python"), script, *arguments, env=env).splitlines()[-1])
