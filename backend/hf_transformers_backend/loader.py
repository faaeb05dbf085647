"""What residency needs from whoever turns a model's name into something in memory."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.model_settings import LoadSettings


class LoadAborted(Exception):
    """Raised out of a progress report when nobody wants the load any more."""


class OutOfMemory(Exception):
    """Raised by a load when memory ran out, on the device or on the host. Another try may succeed."""


class Progress(Protocol):
    """Reports how far a stage is. Raises LoadAborted; let it pass."""

    def __call__(self, done: int, total: int | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A model's files on this machine. `commit` is known for hub models."""

    path: Path
    gguf_file: str | None = None
    commit: str | None = None


class Servable(Protocol):
    """A model in memory. `weights` is the object whose end gives the memory back."""

    @property
    def weights(self) -> object: ...
    @property
    def executor(self) -> ThreadPoolExecutor: ...
    @property
    def resources(self) -> ExitStack: ...
    @property
    def bytes(self) -> int: ...
    @property
    def devices(self) -> Mapping[str, int]: ...
    @property
    def commit(self) -> str | None: ...


class Loader(Protocol):
    """Blocking; called on residency's threads. Failures are FlexServErrors, all else is a fault of ours."""

    def fetch(self, identity: ModelIdentity, settings: LoadSettings, progress: Progress) -> Source:
        """Bring the files here. Several run side by side."""

    def expected_bytes(self, identity: ModelIdentity, settings: LoadSettings) -> int | None:
        """Memory that the weights will take, asked before the files are here; None where nobody tells."""

    def needed_bytes(self, identity: ModelIdentity, source: Source, settings: LoadSettings) -> int | None:
        """Memory that the weights will take, None if the files do not tell."""

    def load(
        self,
        identity: ModelIdentity,
        source: Source,
        settings: LoadSettings,
        executor: ThreadPoolExecutor,
        progress: Progress,
    ) -> Servable:
        """Turn files into a model; runs on `executor`, one load at a time in the process.

        Raises OutOfMemory too.
        """
