"""The disk on which downloaded models lie: its folder, and how full it is."""

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hf_transformers_backend.download_room import occupied_bytes

logger = logging.getLogger(__name__)

FRESH_SECONDS = 60.0
"""How long the size of the cache's folder counts as known: to add it up, every file has to be looked at."""


def make_folder(folder: Path) -> None:
    """Make the cache's folder, which the hub's own tool misses before the first download; raises nothing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.info("the cache %s cannot be made: %s", folder, error.strerror)


class DiskUsage(NamedTuple):
    """Bytes."""

    used: int
    free: int


class CacheDisk:
    """Of the cache's folder under its limit; without one, of the whole file system. Not for two threads."""

    def __init__(self, folder: Path, limit: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._limit = limit
        self._clock = clock
        self._occupied: tuple[float, int] | None = None

    def usage(self) -> DiskUsage:
        """Now. The folder may not exist yet; raises OSError where its file system does not answer."""
        existing = next(path for path in (self._folder, *self._folder.absolute().parents) if path.is_dir())
        disk = shutil.disk_usage(existing)
        if self._limit is None:
            return DiskUsage(disk.used, disk.free)
        used = self._occupied_bytes()
        return DiskUsage(used, max(min(self._limit - used, disk.free), 0))

    def _occupied_bytes(self) -> int:
        if self._occupied is None or self._clock() - self._occupied[0] >= FRESH_SECONDS:
            self._occupied = (self._clock(), occupied_bytes(self._folder))
        return self._occupied[1]
