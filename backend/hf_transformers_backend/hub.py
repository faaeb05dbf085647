"""From a model's name to its files on this machine: a folder that exists, the hub's cache, or a download."""

import errno
import logging
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi, constants, scan_cache_dir, snapshot_download
from huggingface_hub.errors import (
    CacheNotFound,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from hf_transformers_backend.errors import (
    BadGateway,
    BadRequest,
    FlexServError,
    Forbidden,
    InsufficientStorage,
    NotFound,
    Unprocessable,
)
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Progress, Source

logger = logging.getLogger(__name__)

FILES_AT_ONCE = 4
WITHOUT_USE = [
    "*.h5", "*.msgpack", "*.ot", "*.tflite", "*.onnx", "*.pth", "*.ckpt", "*.mlmodel",
    "onnx/*", "openvino/*", "coreml/*", "original/*", "metal/*", "consolidated*.safetensors",
]  # fmt: skip
"""What other frameworks read; a repository may hold several times the bytes that are needed."""


def find_files(identity: ModelIdentity, progress: Progress) -> Source:
    """The model's files, downloaded if they must be. Raises FlexServErrors, and what `progress` raises."""
    name, gguf_file = _split_gguf(identity.model_id)
    if name.startswith("/"):
        return _local(identity, Path(name), gguf_file)
    return _from_hub(identity, name, gguf_file, progress)


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


def _split_gguf(model_id: str) -> tuple[str, str | None]:
    """`owner/name:file.gguf` names one file of a repository; any other colon is part of the name."""
    name, colon, file = model_id.rpartition(":")
    return (name, file) if colon and file.endswith(".gguf") else (model_id, None)


def _local(identity: ModelIdentity, path: Path, gguf_file: str | None) -> Source:
    try:
        is_folder, has_file = path.is_dir(), (path / (gguf_file or "config.json")).is_file()
    except PermissionError as error:
        raise Unprocessable(f"{identity} cannot be read here: {error.strerror}", param="model") from None
    except OSError:  # a name that is too long, and the like
        is_folder = has_file = False
    if not is_folder:
        raise NotFound(f"there is no model folder {identity}", param="model")
    if gguf_file is None and not has_file:
        raise Unprocessable(
            f"{identity} has no config.json: not a model in the transformers format", param="model"
        )
    if not has_file:
        raise NotFound(f"there is no model {identity}", param="model")
    return Source(path, gguf_file)


def _from_hub(identity: ModelIdentity, repository: str, gguf_file: str | None, progress: Progress) -> Source:
    options: dict[str, Any] = {"ignore_patterns": WITHOUT_USE}
    if gguf_file is not None:
        options = {"allow_patterns": [gguf_file, "*.json", "*.jinja", "*.txt"]}
    try:
        if gguf_file is None and not constants.is_offline_mode():
            options["ignore_patterns"] = WITHOUT_USE + _duplicates(repository, identity.revision)
        path = Path(
            snapshot_download(
                repository,
                revision=identity.revision,
                max_workers=FILES_AT_ONCE,
                tqdm_class=_bar_for(progress),
                **options,
            )
        )
    except Exception as error:
        explained = _explain(error, identity)
        if explained is None:
            raise
        logger.info("fetching %s: %s", identity, error)
        raise explained from None
    if not (path / (gguf_file or "config.json")).is_file():
        raise Unprocessable(f"{identity} is not a model in the transformers format", param="model")
    return Source(path, gguf_file, commit=path.name)


def _duplicates(repository: str, revision: str | None) -> list[str]:
    """Weights that are there twice: pickled ones beside safetensors, and all GGUF files."""
    files = HfApi().list_repo_files(repository, revision=revision)
    if any(file.endswith(".safetensors") for file in files):
        return ["*.bin", "*.pt", "*.gguf"]
    return ["*.gguf"]


def _explain(error: Exception, identity: ModelIdentity) -> FlexServError | None:
    """Our error for one of the hub's; None for what is none of theirs."""
    if isinstance(error, GatedRepoError):
        return Forbidden(
            f"access to {identity} is restricted: accept its license on the hub and give this server"
            " a token (HF_TOKEN)",
            code="model_gated",
            param="model",
        )
    if isinstance(error, RevisionNotFoundError):
        return NotFound(f"{identity} has no such revision on the hub", param="model")
    if isinstance(error, RepositoryNotFoundError):
        return NotFound(f"there is no model {identity} on the hub, or it is private", param="model")
    if isinstance(error, HFValidationError):
        return BadRequest(f"{identity} is no hub id (owner/name) and no absolute path", param="model")
    offline = isinstance(error, OfflineModeIsEnabled) or isinstance(error.__cause__, OfflineModeIsEnabled)
    if offline or (isinstance(error, LocalEntryNotFoundError) and constants.is_offline_mode()):
        return NotFound(
            f"{identity} is not in this server's cache, and the hub is switched off", param="model"
        )
    if isinstance(error, (LocalEntryNotFoundError, HfHubHTTPError, httpx2.HTTPError)):
        return BadGateway(f"the model hub could not be reached for {identity}; try again", retry_after=30)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return InsufficientStorage(f"the cache is full: {identity} does not fit", code="insufficient_storage")
    return None


def _bar_for(progress: Progress) -> type[tqdm]:
    """A bar that draws nothing and reports the bytes that are written; the hub's client adds up all files."""
    written, total = 0, 0

    class Bar(tqdm):
        monitor_interval = 0  # else each class of bars, here each load, gets a thread that never ends

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # Of the two byte bars the other one counts what came over the network, for the same bytes.
            self._counts = kwargs.get("unit") == "B" and "Reconstructing" in str(kwargs.get("desc"))
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})
            self.total = kwargs.get("total")

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal written, total
            if self._counts:
                written, total = written + int(n or 0), int(self.total or 0)
            progress(written, total or None)
            return None

    return Bar
