"""The image of the container that holds a pod's namespaces, written as an archive without any docker."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from lab.local.layout import PAUSE_IMAGE


def write(program: Path, archive: Path) -> None:
    """Write an image with the one static program to `archive`, in docker's archive format."""
    layer = _tar({"pause": program.read_bytes()}, mode=0o755)
    config = {
        "architecture": _architecture(program),
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    files = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    archive.write_bytes(_tar(files, mode=0o644))


def _tar(files: dict[str, bytes], mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _architecture(program: Path) -> str:
    """The processor a Linux program is made for, from its ELF header."""
    machine = int.from_bytes(program.read_bytes()[18:20], "little")
    return {0x3E: "amd64", 0xB7: "arm64"}[machine]
