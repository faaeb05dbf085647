"""What huggingface_hub waits for: as long as the hub asks for, within a bound."""

from pathlib import Path

import httpx2
import pytest
from hf_transformers_backend.hub_cache import ABANDONED_SECONDS, cached_snapshot, remove_abandoned
from hf_transformers_backend.hub_client import LONGEST_PAUSE_SECONDS, _shorten_pause
from huggingface_hub import constants


@pytest.mark.parametrize(
    ("status", "headers", "pause"),
    [
        (429, {}, "1"),
        (429, {"retry-after": "2"}, "2"),
        (429, {"retry-after": "3600"}, str(LONGEST_PAUSE_SECONDS)),
        (429, {"retry-after": "Wed, 21 Oct 2037 07:28:00 GMT"}, str(LONGEST_PAUSE_SECONDS)),
        (429, {"ratelimit": '"api";r=0;t=3600'}, "1"),
        (503, {"retry-after": "3600"}, "3600"),
    ],
)
def test_a_pause_for_the_rate_has_a_bound(status: int, headers: dict[str, str], pause: str) -> None:
    response = httpx2.Response(status, headers=headers)
    _shorten_pause(response)
    assert response.headers["retry-after"] == pause
    assert status != 429 or "ratelimit" not in response.headers


def test_only_downloads_that_nobody_works_on_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    blobs = tmp_path / "models--org--one" / "blobs"
    blobs.mkdir(parents=True)
    half, whole = blobs / "a.1.incomplete", blobs / "b"
    for file in (half, whole):
        file.write_bytes(b"x")
    written = half.stat().st_mtime
    remove_abandoned(now=written + ABANDONED_SECONDS - 1)
    assert half.exists()
    remove_abandoned(now=written + ABANDONED_SECONDS + 1)
    assert not half.exists() and whole.exists()


def test_a_snapshot_that_is_not_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert cached_snapshot("org/absent", None, None) is None
    assert cached_snapshot("org/absent", "main", "model.gguf") is None
