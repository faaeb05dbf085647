"""The cache of huggingface_hub on disk: what is whole in it, what is missing, and what nobody will finish."""

import contextlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import constants, scan_cache_dir, snapshot_download
from huggingface_hub.errors import CacheNotFound, LocalEntryNotFoundError
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import filter_repo_objects  # type: ignore[attr-defined]

logger = logging.getLogger(__name__)

WITHOUT_USE = [
    "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.onnx", "*.pth", "*.ckpt", "*.mlmodel",
    "onnx/*", "openvino/*", "coreml/*", "original/*", "metal/*", "consolidated*.safetensors",
]  # fmt: skip
"""What other frameworks read; a repository may hold several times the bytes that are needed."""
BESIDE_SAFETENSORS = ["*.bin", "*.pt", "*.gguf"]
"""The same weights once more."""
BESIDE_PICKLED = ["*.gguf"]
ABANDONED_SECONDS = 900.0
"""A download that is alive has written something in this time: it gives up after 10 s without a byte."""

Wanted = dict[str, Any]
"""Which files of a repository: `allow_patterns` or `ignore_patterns`."""


def wanted_files(files: Sequence[str], gguf_file: str | None) -> Wanted:
    """One GGUF file with what describes it, or all but what is there twice or for others."""
    if gguf_file is not None:
        return {"allow_patterns": [gguf_file, "*.json", "*.jinja", "*.txt"]}
    safe = any(file.endswith(".safetensors") for file in files)
    return {"ignore_patterns": WITHOUT_USE + (BESIDE_SAFETENSORS if safe else BESIDE_PICKLED)}


def cached_snapshot(repository: str, revision: str | None, gguf_file: str | None) -> Path | None:
    """The folder of a snapshot that is whole, without asking the hub; None if there is none."""
    for files in (["model.safetensors"], []):
        try:
            wanted = wanted_files(files, gguf_file)
            path = Path(snapshot_download(repository, revision=revision, local_files_only=True, **wanted))
        except LocalEntryNotFoundError:
            continue
        if gguf_file is not None or not files or any(path.glob("*.safetensors")):
            return path
    return None


def missing_bytes(repository: str, files: Sequence[RepoFile], wanted: Wanted) -> int:
    """Bytes of the wanted files that the cache does not have: it names a file by its content's hash."""
    blobs = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model") / "blobs"
    return sum(
        file.size
        for file in filter_repo_objects(files, key=lambda file: file.path, **wanted)
        if not (blobs / (file.lfs.sha256 if file.lfs else file.blob_id)).exists()
    )


def cache_folder() -> Path:
    """All that the hub's client writes: HF_HOME, unless the hub's part of it was put elsewhere."""
    home, hub = Path(constants.HF_HOME), Path(constants.HF_HUB_CACHE)
    return home if hub.is_relative_to(home) else hub


def remove_abandoned(now: float | None = None) -> None:
    """Delete what killed processes left half downloaded: it is never resumed, and fills the disk."""
    before = (time.time() if now is None else now) - ABANDONED_SECONDS
    for file in Path(constants.HF_HUB_CACHE).glob("models--*/blobs/*.incomplete"):
        with contextlib.suppress(OSError):
            status = file.stat()
            if status.st_mtime < before:
                file.unlink()
                logger.info("removed %d bytes of a download that was never finished", status.st_size)


def cached_models() -> list[tuple[str, int]]:
    """Hub models in the cache that have a configuration: id and time of the last change in epoch seconds."""
    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    return sorted(
        (repository.repo_id, int(repository.last_modified))
        for repository in repositories
        if repository.repo_type == "model"
        and any(
            file.file_name == "config.json" for revision in repository.revisions for file in revision.files
        )
    )
