"""The base image of our own builds: a minimal Debian with Python, made without any registry."""

import os
import shutil
import tempfile
from pathlib import Path

from lab import docker_engine, recipe
from lab.commands import find, run, succeeds
from lab.errors import MissingError
from lab.places import cache
from lab.progress import stage

RELEASE = "bookworm"
PACKAGES = ("ca-certificates", "python3", "python3-venv")
# Package lists and archives, logs, and what is for people to read; copyright notices stay.
EMPTIED = (
    "var/cache/apt",
    "var/cache/debconf",
    "var/lib/apt/lists",
    "var/log",
    "usr/share/man",
    "usr/share/info",
)
REPOSITORY = "flexserv/base"
_DEBOOTSTRAP_SECONDS = 1200.0
_SECONDS = 300.0


def name() -> str:
    """The image's name; its tag changes with the recipe in this file."""
    return f"{REPOSITORY}:{RELEASE}-{recipe.digest(Path(__file__))}"


def ensure() -> str:
    """Make sure that the docker engine has the image, and return its name. Needs root the first time."""
    access = docker_engine.environment()
    docker = docker_engine.client()
    if not succeeds([docker, "image", "inspect", name()], timeout=_SECONDS, env=access):
        archive = _archive()
        with stage(f"importing {name()}"):
            run([docker, "import", str(archive), name()], timeout=_SECONDS, env=access)
    return name()


def _archive() -> Path:
    """The root file system as a tar file in the cache."""
    folder = cache() / "images"
    archive = folder / f"{name().replace('/', '-').replace(':', '-')}.tar"
    if archive.exists():
        return archive
    if os.geteuid() != 0:
        raise MissingError("making the base image needs root: run hack/base-image as root once")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        stage(f"making the base image from Debian {RELEASE}"),
        tempfile.TemporaryDirectory(dir=folder) as scratch,
    ):
        root, packed = Path(scratch) / "root", Path(scratch) / "root.tar"
        debootstrap = find("debootstrap", "apt-get install debootstrap")
        what = ["--variant=minbase", f"--include={','.join(PACKAGES)}", RELEASE]
        run([debootstrap, *what, root, *_mirror()], timeout=_DEBOOTSTRAP_SECONDS)
        _shrink(root)
        pack: list[str | Path] = [
            "tar",
            "--create",
            "--file",
            packed,
            "--directory",
            root,
            "--exclude=./dev/*",
            ".",
        ]
        run(pack, timeout=_SECONDS)
        packed.rename(archive)
    return archive


def _mirror() -> list[str]:
    """Where this machine's apt takes the release from, else nothing: debootstrap then has its own default."""
    chosen = ["Created-By: Packages", f"Codename: {RELEASE}"]
    query = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *chosen]
    return run(query, timeout=_SECONDS).split()[:1] if shutil.which("apt-get") else []


def _shrink(root: Path) -> None:
    for folder in EMPTIED:
        for entry in (root / folder).iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for locale in (root / "usr/share/locale").iterdir():
        if locale.is_dir():
            shutil.rmtree(locale)
    for file in (root / "usr/share/doc").rglob("*"):
        if not file.is_dir() and file.name != "copyright":
            file.unlink()
