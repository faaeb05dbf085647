"""Room on disk for downloads, told before the first byte is fetched.

Two limits hold, and the tighter one counts: what the cache's folder may grow to, and what its file system
has free. A pod whose emptyDir outgrows its limit is evicted, and nothing on the way there looks like a full
disk.
"""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hf_transformers_backend.errors import InsufficientStorage
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Progress


class DownloadRoom:
    """What downloads may still take. Those under way count with the bytes that they still need."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._outstanding: dict[object, int] = {}

    @contextmanager
    def reserve(
        self, identity: ModelIdentity, needed_bytes: int, folder: Path, progress: Progress
    ) -> Iterator[Progress]:
        """Keep `needed_bytes` below `folder` for the block, which reports to what it is given.

        Raises InsufficientStorage (insufficient_storage), with both numbers, where they are not to be had.
        """
        key = object()
        with self._lock:
            available = max(self._free_bytes(folder) - sum(self._outstanding.values()), 0)
            if needed_bytes > available:
                raise InsufficientStorage(
                    f"{identity} needs {needed_bytes} bytes of disk, {available} are available in the cache;"
                    " make the cache larger, or delete models from it",
                    code="insufficient_storage",
                    needed_bytes=needed_bytes,
                    available_bytes=available,
                )
            self._outstanding[key] = needed_bytes

        def report(done: int, total: int | None) -> None:
            with self._lock:
                self._outstanding[key] = max(needed_bytes - done, 0)
            progress(done, total)

        try:
            yield report
        finally:
            with self._lock:
                del self._outstanding[key]

    def _free_bytes(self, folder: Path) -> int:
        existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
        free = shutil.disk_usage(existing).free
        return free if self._limit_bytes is None else min(free, self._limit_bytes - occupied_bytes(folder))


def occupied_bytes(folder: Path) -> int:
    """Disk that the files below `folder` take; what vanishes meanwhile takes none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total
