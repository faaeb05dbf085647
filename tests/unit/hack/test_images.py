"""Images on their way into a node."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from lab.kind import configuration
from lab.local.images import full_name
from lab.local.layout import PAUSE_IMAGE
from lab.local.pause_image import write


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("python", "docker.io/library/python:latest"),
        ("python:3.11", "docker.io/library/python:3.11"),
        ("flexserv/backend:abc", "docker.io/flexserv/backend:abc"),
        ("localhost/backend", "localhost/backend:latest"),
        ("registry.example:5000/team/backend", "registry.example:5000/team/backend:latest"),
        ("registry.example/backend:1", "registry.example/backend:1"),
    ],
)
def test_a_short_name_becomes_the_one_that_containerd_keeps(short: str, full: str) -> None:
    assert full_name(short) == full


@pytest.mark.parametrize(("machine", "architecture"), [(0x3E, "amd64"), (0xB7, "arm64")])
def test_the_pause_archive_is_a_whole_image_of_one_program(
    tmp_path: Path, machine: int, architecture: str
) -> None:
    program = tmp_path / "pause"
    program.write_bytes(b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little") + b"rest")
    write(program, tmp_path / "pause.tar")
    with tarfile.open(tmp_path / "pause.tar") as archive:
        files = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    (manifest,) = json.loads(files["manifest.json"])
    config = json.loads(files[manifest["Config"]])
    (layer,) = manifest["Layers"]
    assert manifest["RepoTags"] == [PAUSE_IMAGE]
    assert config["architecture"] == architecture
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(files[layer]).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(files[layer])) as content:
        assert [(one.name, one.mode) for one in content] == [("pause", 0o755)]


def test_kind_sees_the_models_at_their_own_path_and_cannot_write_them() -> None:
    nodes: Any = configuration(Path("/some/models"))["nodes"]
    (node,) = nodes
    assert node["extraMounts"] == [
        {"hostPath": "/some/models", "containerPath": "/some/models", "readOnly": True}
    ]
