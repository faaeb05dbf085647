"""Marker files that survive a crash: they tell the next process which load killed this one."""

import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path

from hf_transformers_backend.identity import ModelIdentity

logger = logging.getLogger(__name__)


class LoadMarkers:
    """One small file per load under way, in a folder that outlives the process. Without a folder: nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._set: dict[ModelIdentity, None] = {}

    def left_behind(self) -> tuple[ModelIdentity, ...]:
        """The models whose load a former process did not survive."""
        if self._folder is None:
            return ()
        found = []
        for file in sorted(self._folder.glob("loading-*.json")):
            try:
                found.append(ModelIdentity(**json.loads(file.read_text(encoding="utf-8"))))
            except (OSError, ValueError, TypeError):
                logger.warning("ignoring the unreadable marker %s", file.name)
        return tuple(found)

    def set(self, identity: ModelIdentity) -> None:
        """Written before the load; a folder that cannot be written is logged, the load goes on."""
        if self._folder is None:
            return
        self._set[identity] = None
        try:
            self._file(identity).write_text(json.dumps(asdict(identity)), encoding="utf-8")
        except OSError as error:
            logger.warning("cannot write a load marker: %s", error.strerror)

    def clear_own(self) -> None:
        """The process ends on purpose: what it was loading did not kill it."""
        for identity in list(self._set):
            self.clear(identity)

    def clear(self, identity: ModelIdentity) -> None:
        """The load has ended, well or not."""
        self._set.pop(identity, None)
        if self._folder is not None:
            try:
                self._file(identity).unlink(missing_ok=True)
            except OSError as error:
                logger.warning("cannot remove a load marker: %s", error.strerror)

    def _file(self, identity: ModelIdentity) -> Path:
        assert self._folder is not None
        digest = hashlib.sha256(json.dumps(asdict(identity)).encode()).hexdigest()[:24]
        return self._folder / f"loading-{digest}.json"
