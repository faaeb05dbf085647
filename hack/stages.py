"""Run named stages one after another, saying what runs, how long it took, and what failed."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = str(ROOT / ".venv" / "bin" / "python")


@dataclasses.dataclass(frozen=True)
class Stage:
    """One line of the summary: a name and the commands behind it, run from the project's folder.

    `always` stages run even after a failure (they end what an earlier stage started).
    """

    name: str
    commands: Sequence[Sequence[str]]
    always: bool = False


def run(stages: Sequence[Stage], environment: dict[str, str] | None = None) -> int:
    """Run the stages in order up to the first failure, print a table of times, return the exit status."""
    env = {**os.environ, **(environment or {})}
    began = time.monotonic()
    rows: list[tuple[str, str, float]] = []
    failed = False
    for stage in stages:
        if failed and not stage.always:
            rows.append((stage.name, "not run", 0.0))
            continue
        print(f"\n==> {stage.name} (at {_clock(time.monotonic() - began)})", flush=True)
        started = time.monotonic()
        status = next((code for command in stage.commands if (code := _call(command, env))), 0)
        rows.append((stage.name, "ok" if status == 0 else f"FAILED ({status})", time.monotonic() - started))
        failed = failed or status != 0
    print("\nstage                elapsed  result")
    for name, result, seconds in rows:
        print(f"{name:<20} {_clock(seconds):>7}  {result}")
    print(f"{'total':<20} {_clock(time.monotonic() - began):>7}  {'FAILED' if failed else 'ok'}", flush=True)
    return 1 if failed else 0


def _call(command: Sequence[str], env: dict[str, str]) -> int:
    print("  $ " + " ".join(command), flush=True)
    try:
        return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    except FileNotFoundError as error:
        print(f"  cannot start {error.filename}: {error.strerror}", file=sys.stderr)
        return 127
    except KeyboardInterrupt:
        return 130


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
