"""Mounts inside an enclosure's own mount namespace: not seen outside, and gone with the enclosure."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_STORE = Path("/tmp")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=20)


def shield(folders: Sequence[str], kept: Sequence[str]) -> None:
    """Lay a writable layer in memory over each folder: what programs write there stays in here.

    The shims of containerd, the CNI cache, kubelet's device plugins and xtables' lock have fixed places in
    /run and /var. `kept` folders inside stay the real ones (big or lasting data).
    """
    _mount("--make-rshared", "/")
    if not folders:
        return
    inside = [path for path in kept if _inside(path, folders)]
    _mount("-t", "tmpfs", "-o", "mode=755", "flexserv", str(_STORE))
    for number, path in enumerate(inside):
        (_STORE / f"kept{number}").mkdir()
        _mount("--bind", path, str(_STORE / f"kept{number}"))
    for folder in folders:
        upper = _STORE / folder.strip("/").replace("/", "-")
        work = upper.with_suffix(".work")
        upper.mkdir()
        work.mkdir()
        _mount(
            "-t", "overlay", "-o", f"lowerdir={folder},upperdir={upper},workdir={work}", "flexserv", folder
        )
    for number, path in enumerate(inside):
        _mount("--bind", str(_STORE / f"kept{number}"), path)
    subprocess.run(["umount", "--lazy", str(_STORE)], check=True, timeout=20)


def _inside(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).resolve().is_relative_to(Path(folder).resolve()) for folder in folders)


def fix_kernel_settings(settings: Mapping[str, str]) -> None:
    """Show a constant in place of each /proc/sys file: kubelet finds what it wants and writes nothing."""
    if not settings:
        return
    store = Path("/run/flexserv-kernel-settings")
    store.mkdir(parents=True, exist_ok=True)
    for name, value in settings.items():
        constant = store / name.replace("/", "-")
        constant.write_text(value + "\n")
        if Path("/proc/sys", name).exists():
            _mount("--bind", str(constant), f"/proc/sys/{name}")
