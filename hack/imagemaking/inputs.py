"""What an image is built from, and the tag that follows from it: the same inputs, the same tag."""

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Image:
    """One target of the Dockerfile. `size_limit`: the largest uncompressed size in bytes without CUDA."""

    target: str
    sources: Sequence[str]
    size_limit: int

    @property
    def repository(self) -> str:
        """The image's name without its tag."""
        return f"flexserv/{self.target}"


_NO_SOURCE = ("__pycache__", "_cache", ".egg-info")
_SHARED = (
    "Dockerfile",
    ".dockerignore",
    "LICENSE",
    "constraints.txt",
    "pyproject.toml",
    "hack/imagemaking/leftovers.py",
    "hack/imagemaking/requirements.py",
)
# In the order of the Dockerfile, so that each build finds the stages of the one before it.
IMAGES = (
    Image("operator", (*_SHARED, "operator"), 250_000_000),
    Image("backend", (*_SHARED, "backend"), 1_600_000_000),
)


def tag(root: Path, image: Image, choices: Sequence[str]) -> str:
    """Twelve characters that change with any source file of the image and any of the build's `choices`."""
    digest = hashlib.sha256("\0".join(choices).encode())
    for source in image.sources:
        for file in _files(root / source):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"\0{file.relative_to(root)}\0{content}".encode())
    return digest.hexdigest()[:12]


def copy_sources(root: Path, target: Path) -> None:
    """Copy the sources of all images, so that a build sees one state of them whatever is edited meanwhile."""
    for source in sorted({source for image in IMAGES for source in image.sources}):
        for file in _files(root / source):
            copy = target / file.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, copy)


def _files(path: Path) -> Iterator[Path]:
    """The files under `path` in a fixed order, without those that .dockerignore keeps out."""
    if path.is_file():
        yield path
    for folder, inner, names in os.walk(path):
        inner[:] = sorted(name for name in inner if not name.endswith(_NO_SOURCE))
        yield from (Path(folder) / name for name in sorted(names))
