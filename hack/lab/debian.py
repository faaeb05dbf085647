"""Programs from Debian packages, extracted and not installed, so that no service starts on this machine."""

import hashlib
import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path

from lab.commands import run, succeeds
from lab.errors import CommandError, MissingError
from lab.places import binaries, cache, debian
from lab.progress import say, stage

EXTRACTED = ["containerd", "containernetworking-plugins", "docker.io", "etcd-server", "prometheus", "runc"]
INSTALLED = {
    "conntrack": "/usr/sbin/conntrack",
    "debootstrap": "/usr/sbin/debootstrap",
    "gcc": "/usr/bin/gcc",
    "iproute2": "/usr/sbin/ip",
    "iptables": "/usr/sbin/iptables",
    "libc6-dev": "/usr/include/stdio.h",
    "libdevmapper1.02.1": "",
    "libseccomp2": "",
    "libsystemd0": "",
    "openssl": "/usr/bin/openssl",
}
"""Packages that must really be there, with the program that proves it (none: ask dpkg)."""
BROWSER = {"chromium-headless-shell": "/usr/bin/chromium-headless-shell"}
"""What the tests of the page need beside those."""
LINKED = ["ctr", "etcd", "prometheus", "promtool"]
"""Extracted programs that tests call by name; not docker, whose client must fit the machine's own engine."""


def missing_packages() -> list[str]:
    """The packages that have to be installed on this machine."""
    missing = [name for name, program in INSTALLED.items() if not _present(name, program)]
    if find_spec("ensurepip") is None:
        missing.append("python3-venv")
    return missing


def _present(package: str, program: str) -> bool:
    if program:
        return Path(program).exists()
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    return succeeds(query, timeout=30) and run(query, timeout=30).strip() == "installed"


def key() -> str:
    """What the extracted tree depends on: the list of packages and the release they come from."""
    release = Path("/etc/os-release").read_text() if Path("/etc/os-release").exists() else ""
    codename = [line for line in release.splitlines() if line.startswith("VERSION_CODENAME=")]
    return hashlib.sha256("\n".join([*EXTRACTED, *codename]).encode()).hexdigest()[:16]


def install() -> None:
    """Install what is missing; nothing is done when all is there."""
    _install(missing_packages())


def provide_browser() -> None:
    """Install the browser; nothing is done when it is there."""
    _install([name for name, program in BROWSER.items() if not _present(name, program)])


def provide() -> None:
    """Install what is missing and extract the rest; nothing is done when all is there."""
    install()
    stamp = debian() / ".key"
    if not stamp.exists() or stamp.read_text() != key():
        _extract()
    binaries().mkdir(parents=True, exist_ok=True)
    for name in LINKED:
        link(binaries() / name, debian() / "usr/bin" / name)


def link(place: Path, target: Path) -> None:
    """Make `place` a link to `target` in one step."""
    fresh = place.with_name(f".{place.name}.{os.getpid()}")
    fresh.symlink_to(target)
    fresh.replace(place)


def _require_apt() -> None:
    if shutil.which("apt-get") is None:
        raise MissingError("apt-get is not on this machine: these tools are made for Debian 12")


def _install(packages: list[str]) -> None:
    if not packages:
        return
    _require_apt()
    if os.geteuid() != 0:
        raise MissingError(
            f"not root; as root run: apt-get install --no-install-recommends {' '.join(packages)}"
        )
    with stage(f"apt-get install {' '.join(packages)}"):
        install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *packages]
        _with_lists([*install, "-o", "DPkg::Lock::Timeout=300"], timeout=900)


def _with_lists(argv: list[str], *, timeout: float, cwd: Path | None = None) -> None:
    """Run an apt command; if it fails, refresh the lists of packages and run it once more."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        run(argv, timeout=timeout, cwd=cwd, env=quiet)
        return
    except CommandError:
        say("refreshing apt's lists of packages")
    try:
        run(["apt-get", "update", "-q"], timeout=300, env=quiet)
        run(argv, timeout=timeout, cwd=cwd, env=quiet)
    except CommandError as error:
        raise MissingError(
            f"Debian packages cannot be fetched (is the package mirror reachable?)\n{error}"
        ) from error


def _extract() -> None:
    _require_apt()
    cache().mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=cache(), prefix=".debian-") as work,
        stage(f"extracting {' '.join(EXTRACTED)}"),
    ):
        downloads, tree = Path(work, "downloads"), Path(work, "tree")
        downloads.mkdir()
        _with_lists(
            ["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", *EXTRACTED],
            timeout=600,
            cwd=downloads,
        )
        for package in sorted(downloads.glob("*.deb")):
            run(["dpkg", "-x", package, tree], timeout=120)
        (tree / ".key").write_text(key())
        if debian().exists():
            debian().rename(Path(work, "old"))
        tree.rename(debian())
