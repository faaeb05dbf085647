"""Run other programs, always with a limit, and turn their failures into readable errors."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.errors import CommandError, MissingError, TookTooLong
from lab.places import search_path

_TAIL_LINES = 20


def tail(text: str, lines: int = _TAIL_LINES) -> str:
    """The last lines of a text: errors stand at the end of logs."""
    return "\n".join(text.strip().splitlines()[-lines:])


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with our tools on PATH."""
    return {**os.environ, "PATH": search_path(), **(extra or {})}


def find(program: str, remedy: str) -> str:
    """The path of a program, ours first. Raises MissingError that names the remedy."""
    found = shutil.which(program, path=search_path())
    if found is None:
        raise MissingError(f"{program} is not on this machine: {remedy}")
    return found


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
) -> str:
    """Run to the end and return standard output; `timeout` is in seconds.

    Raises CommandError when it fails or takes too long, MissingError when the program does not exist.
    """
    command = [str(word) for word in argv]
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            command,
            env=environment(env),
            cwd=cwd,
            input=stdin,
            timeout=timeout,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError as error:
        raise MissingError(f"{command[0]} is not on this machine (needed for: {shown})") from error
    except subprocess.TimeoutExpired as error:
        raise TookTooLong(f"{shown}: no end after {timeout:.0f} s") from error
    if done.returncode != 0:
        raise CommandError(f"{shown}: exit status {done.returncode}\n{tail(done.stderr or done.stdout)}")
    return done.stdout


def succeeds(argv: Sequence[str | Path], *, timeout: float, env: Mapping[str, str] | None = None) -> bool:
    """Whether the program exists, ends in time and exits with 0."""
    try:
        run(argv, timeout=timeout, env=env)
    except (CommandError, MissingError):
        return False
    return True
