"""Room for downloads: the limit of the cache, the free disk, and downloads side by side."""

import shutil
from pathlib import Path

import pytest
from hf_transformers_backend.download_room import DownloadRoom, occupied_bytes
from hf_transformers_backend.errors import InsufficientStorage
from hf_transformers_backend.identity import ModelIdentity

MIB = 1024**2
MODEL = ModelIdentity("org/model")


def ignore(done: int, total: int | None) -> None:
    """Nobody watches."""


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache that holds 3 MiB, and a link to them, which takes nothing."""
    blob = tmp_path / "hub" / "blobs" / "abc"
    blob.parent.mkdir(parents=True)
    blob.write_bytes(bytes(range(256)) * (3 * MIB // 256))
    (tmp_path / "snapshot").symlink_to(blob)
    return tmp_path


def test_what_a_cache_takes_is_counted_once(cache: Path) -> None:
    assert 3 * MIB <= occupied_bytes(cache) < 3 * MIB + 64 * 1024
    assert occupied_bytes(cache / "absent") == 0


def test_a_download_fits_into_what_the_limit_leaves(cache: Path) -> None:
    room = DownloadRoom(10 * MIB)

    with room.reserve(MODEL, 6 * MIB, cache, ignore):
        pass
    with pytest.raises(InsufficientStorage) as refused, room.reserve(MODEL, 8 * MIB, cache, ignore):
        pass

    error = refused.value
    assert (error.status, error.code) == (507, "insufficient_storage")
    assert error.details["needed_bytes"] == 8 * MIB
    assert 6 * MIB < error.details["available_bytes"] < 7 * MIB
    assert "org/model" in error.message and str(cache) not in error.message


def test_without_a_limit_the_free_disk_counts(cache: Path) -> None:
    free = shutil.disk_usage(cache).free

    with DownloadRoom(None).reserve(MODEL, free // 2, cache, ignore):
        pass
    for room in (DownloadRoom(None), DownloadRoom(10 * free)):
        with pytest.raises(InsufficientStorage), room.reserve(MODEL, 4 * free, cache, ignore):
            pass


def test_a_cache_that_does_not_exist_yet_has_the_room_of_its_disk(tmp_path: Path) -> None:
    with DownloadRoom(MIB).reserve(MODEL, MIB, tmp_path / "not" / "yet", ignore):
        pass


def test_what_is_cached_already_needs_no_room(cache: Path) -> None:
    with DownloadRoom(0).reserve(MODEL, 0, cache, ignore):
        pass


def test_downloads_side_by_side_share_the_room(tmp_path: Path) -> None:
    room = DownloadRoom(10 * MIB)
    told: list[tuple[int, int | None]] = []

    with room.reserve(MODEL, 6 * MIB, tmp_path, lambda done, total: told.append((done, total))) as report:
        with pytest.raises(InsufficientStorage), room.reserve(MODEL, 5 * MIB, tmp_path, ignore):
            pass
        report(2 * MIB, 6 * MIB)
        with room.reserve(MODEL, 5 * MIB, tmp_path, ignore):
            pass
    with room.reserve(MODEL, 10 * MIB, tmp_path, ignore):
        pass

    assert told == [(2 * MIB, 6 * MIB)]
