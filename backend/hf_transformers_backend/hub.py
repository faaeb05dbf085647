"""From a model's name to its files on this machine: a folder that exists, the hub's cache, or a download."""

import errno
import logging
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import HfApi, constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from hf_transformers_backend.download_room import DownloadRoom
from hf_transformers_backend.errors import (
    BadGateway,
    BadRequest,
    FlexServError,
    Forbidden,
    InsufficientStorage,
    NotFound,
    Unprocessable,
)
from hf_transformers_backend.hub_cache import (
    cache_folder,
    cached_snapshot,
    missing_bytes,
    remove_abandoned,
    wanted_files,
)
from hf_transformers_backend.hub_client import is_away, use_bounded_client
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Progress, Source

logger = logging.getLogger(__name__)

FILES_AT_ONCE = 4


def find_files(identity: ModelIdentity, progress: Progress, room: DownloadRoom) -> Source:
    """The model's files, downloaded if they must be and if there is `room`.

    Raises FlexServErrors, and what `progress` raises.
    """
    name, gguf_file = _split_gguf(identity.model_id)
    if name.startswith("/"):
        return _local(identity, Path(name), gguf_file)
    return _from_hub(identity, name, gguf_file, progress, room)


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


def _from_hub(
    identity: ModelIdentity, repository: str, gguf_file: str | None, progress: Progress, room: DownloadRoom
) -> Source:
    use_bounded_client()
    try:
        path = _snapshot(identity, repository, gguf_file, progress, room)
    except FlexServError:
        raise
    except Exception as error:
        explained = _explain(error, identity)
        if explained is None:
            raise
        logger.info("fetching %s: %s", identity, error)
        raise explained from None
    if not (path / (gguf_file or "config.json")).is_file():
        raise Unprocessable(f"{identity} is not a model in the transformers format", param="model")
    return Source(path, gguf_file, commit=path.name)


def _snapshot(
    identity: ModelIdentity, repository: str, gguf_file: str | None, progress: Progress, room: DownloadRoom
) -> Path:
    """The newest snapshot that the hub has, or the one in the cache while the hub is away."""
    revision = identity.revision
    offline = constants.is_offline_mode()
    if offline or is_away(repository, revision):
        cached = cached_snapshot(repository, revision, gguf_file)
        if cached is not None:
            if not offline:
                logger.warning("the hub cannot be asked about %s: the cached files are used", identity)
            return cached
        if offline:
            raise NotFound(
                f"{identity} is not in this server's cache, and the hub is switched off", param="model"
            )
    # A hub that is away is asked a few times more.
    files = _files_of(repository, revision)
    wanted = wanted_files([file.path for file in files], gguf_file)
    remove_abandoned()
    missing = missing_bytes(repository, files, wanted)
    with room.reserve(identity, missing, cache_folder(), progress) as report:
        return Path(
            snapshot_download(
                repository,
                revision=revision,
                max_workers=FILES_AT_ONCE,
                tqdm_class=_bar_for(report),
                **wanted,
            )
        )


def _files_of(repository: str, revision: str | None) -> list[RepoFile]:
    entries = HfApi().list_repo_tree(repository, revision=revision, recursive=True)
    return [entry for entry in entries if isinstance(entry, RepoFile)]


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
