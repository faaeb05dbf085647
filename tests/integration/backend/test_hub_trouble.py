"""A hub in trouble, a full disk, a killed process: each has its code, and the cache stays whole."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.hub import CHUNK, Hub
from tests.support.models import model_path
from tests.support.server import RunningServer

pytestmark = pytest.mark.timeout(300)  # Up to three servers start, one after another.

LARGE_FILE = "extra.safetensors"
PIECES = 3
FEWER_THAN_TRIES, MORE_THAN_TRIES = 2, 1000


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Repositories that differ in name only: a tiny model, and a file that takes several pieces."""
    folder = tmp_path / "repository"
    shutil.copytree(Path(model_path("tiny-random-llama")), folder)
    with (folder / LARGE_FILE).open("wb") as file:
        file.truncate(PIECES * CHUNK)
    (folder / "pytorch_model.bin").write_bytes(b"the same weights again")
    with Hub({f"org/{name}": folder for name in ("one", "two", "three")}, {}) as hub:
        yield hub


def backend(hub: Hub, home: Path, *flags: str, offline: bool = False, **options: Any) -> RunningServer:
    env = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": str(int(offline)), "HF_HUB_DISABLE_XET": "1"}
    return RunningServer("--device", "cpu", *flags, env={**env, "HF_HOME": str(home)}, **options)


def load(server: RunningServer, model_id: str, wait: float = 60) -> httpx.Response:
    body = {"model_id": model_id, "wait": wait}
    return server.client.post("/v1/flexserv/models/load", json=body, timeout=wait + 10)


def outcome(response: httpx.Response) -> tuple[int, str]:
    body = response.json()
    return response.status_code, body["error"]["code"] if response.is_error else body["status"]


def answers(server: RunningServer, model: str) -> bool:
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    return server.client.post("/v1/chat/completions", json=body).is_success


def wait_for_a_piece(server: RunningServer) -> None:
    def downloading() -> bool:
        jobs = server.client.get("/v1/flexserv/models/loaded").json()["loading"]
        return any(job["stage"] == "download" and job["done"] >= CHUNK for job in jobs)

    eventually(downloading, 30)


def test_a_download_goes_on_after_refusals_for_the_rate_and_a_cut_and_is_used_while_the_hub_is_away(
    hub: Hub, tmp_path: Path
) -> None:
    hub.gate.set()
    with backend(hub, tmp_path / "home") as server:
        hub.too_many["org/one"] = FEWER_THAN_TRIES
        hub.cuts[f"org/one/{LARGE_FILE}"] = 1
        assert outcome(load(server, "org/one")) == (200, "loaded")
        assert f"org/one/{LARGE_FILE}" in hub.resumed
        hub.too_many["org/two"] = MORE_THAN_TRIES
        refused = load(server, "org/two")
        assert outcome(refused) == (502, "hub_unavailable")
        assert int(refused.headers["retry-after"]) > 0
        hub.too_many["org/one"] = MORE_THAN_TRIES
        server.client.post("/reset").raise_for_status()
        assert outcome(load(server, "org/one")) == (200, "loaded")
        hub.stop()
        server.client.post("/reset").raise_for_status()
        assert outcome(load(server, "org/one")) == (200, "loaded")
        assert answers(server, "org/one")
        assert "the cached files are used" in server.log()


@pytest.mark.full  # The hub's client tries for 23 seconds to connect.
def test_what_is_not_cached_while_the_hub_is_away_is_a_bad_gateway(hub: Hub, tmp_path: Path) -> None:
    with backend(hub, tmp_path / "home") as server:
        hub.stop()
        assert outcome(load(server, "org/one")) == (502, "hub_unavailable")


def test_a_process_that_is_killed_in_a_download_leaves_a_cache_that_the_next_one_completes(
    hub: Hub, tmp_path: Path
) -> None:
    home, state = tmp_path / "home", ("--state-dir", str(tmp_path / "state"))
    (tmp_path / "state").mkdir()
    an_hour_ago = time.time() - 3600
    with backend(hub, home, *state, expected_exit=-9) as first:
        load(first, "org/one", wait=0)
        wait_for_a_piece(first)
        first.process.kill()
        first.process.wait()
    left = list(home.rglob("*.incomplete"))
    assert left
    for file in left:
        os.utime(file, (an_hour_ago, an_hour_ago))
    hub.gate.set()
    with backend(hub, home, *state) as second:
        inventory = second.client.get("/v1/flexserv/models/loaded").json()
        assert inventory["crashed_loading"] == [], "the model did not kill the process"
        assert outcome(load(second, "org/one")) == (200, "loaded")
        assert answers(second, "org/one")
    assert list(home.rglob("*.incomplete")) == []
    with backend(hub, home, offline=True) as offline:
        assert outcome(load(offline, "org/one")) == (200, "loaded")
        assert outcome(load(offline, "org/two")) == (404, "model_not_found")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one model."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={(PIECES + 2) * CHUNK}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=True, timeout=30)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=30)


def test_a_disk_that_fills_up_during_a_download_has_its_code(hub: Hub, small_disk: Path) -> None:
    with backend(hub, small_disk) as server:
        load(server, "org/one", wait=0)
        wait_for_a_piece(server)
        full = small_disk / "of others"
        with pytest.raises(OSError), full.open("wb") as file:
            while True:
                file.write(bytes(CHUNK))
        hub.gate.set()
        refused = load(server, "org/one")
        assert outcome(refused) == (507, "insufficient_storage")
        full.unlink()
        assert outcome(load(server, "org/one")) == (200, "loaded")
        assert answers(server, "org/one")
