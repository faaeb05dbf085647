"""Load until a limit that the kernel enforces acts: what is in use stays, and nobody is killed."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.memory_cgroup import MemoryCgroup
from tests.support.server import RunningServer
from tests.support.weighty_models import forget_pages, make_weighty_model

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a cgroup needs root"),
    pytest.mark.timeout(400),
]

MEGABYTES = 160
NAMES = "abcdef"
BASE_BYTES = 700_000_000
"""What the server with its libraries needs, with room to spare for answering."""
WAIT_SECONDS = 60
ENDLESS_TOKENS = 4000
"""What fits into the models' context."""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Six models with files of their own: pages of one file would be shared."""
    folder = tmp_path_factory.mktemp("weighty")
    make_weighty_model(folder / NAMES[0], MEGABYTES)
    for name in NAMES[1:]:
        shutil.copytree(folder / NAMES[0], folder / name)
        forget_pages(folder / name)
    forget_pages(folder / NAMES[0])
    yield {name: str(folder / name) for name in NAMES}
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def cgroup() -> Iterator[MemoryCgroup]:
    with MemoryCgroup(BASE_BYTES + 3 * MEGABYTES * 1_000_000) as cgroup:
        yield cgroup


@pytest.fixture(scope="module")
def server(cgroup: MemoryCgroup) -> Iterator[RunningServer]:
    flags = ("--device", "cpu", "--oom-monitor", "--oom-ram-threshold", "90", "--oom-check-interval", "1")
    with RunningServer(*flags, inside=cgroup.command) as server:
        yield server


def load(server: RunningServer, path: str, **settings: Any) -> httpx.Response:
    body = {"model_id": path, "wait": WAIT_SECONDS, **settings}
    return server.client.post("/v1/flexserv/models/load", json=body, timeout=2 * WAIT_SECONDS)


def inventory(server: RunningServer) -> dict[str, Any]:
    return server.client.get("/v1/flexserv/models/loaded").raise_for_status().json()  # type: ignore[no-any-return]


def resident(server: RunningServer) -> set[str]:
    return {Path(model["model_id"]).name for model in inventory(server)["models"]}


def chat(path: str, tokens: int, *, stream: bool = False) -> dict[str, Any]:
    message = {"role": "user", "content": "hi"}
    return {"model": path, "messages": [message], "max_tokens": tokens, "stream": stream, "temperature": 0}


class Stream(threading.Thread):
    """An answer read in the background: `lines` grows until the model's context is full, or to the end of
    the block."""

    def __init__(self, server: RunningServer, path: str) -> None:
        super().__init__()
        self._url, self._body = server.base_url, chat(path, ENDLESS_TOKENS, stream=True)
        self._enough = threading.Event()
        self.lines: list[str] = []

    def __enter__(self) -> "Stream":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self.join(WAIT_SECONDS)
        assert not self.is_alive(), "the server does not answer any more"

    def run(self) -> None:
        url = f"{self._url}/v1/chat/completions"
        with httpx.stream("POST", url, json=self._body, timeout=300) as reply:
            for line in reply.iter_lines():
                if self._enough.is_set():
                    return
                self.lines.extend([line] if line else [])


def test_loading_more_than_fits_lets_the_idle_ones_go_and_nothing_else(
    server: RunningServer, cgroup: MemoryCgroup, weights: dict[str, str]
) -> None:
    assert "container" in server.client.get("/v1/flexserv/resources").json()
    assert load(server, weights["a"]).status_code == 200
    with Stream(server, weights["a"]) as stream:
        eventually(lambda: stream.lines, WAIT_SECONDS)
        for name in "bcdef":
            reply = load(server, weights[name])
            assert reply.status_code == 200, reply.text
            # Its pages are faulted in by use.
            server.client.post("/v1/chat/completions", json=chat(weights[name], 2)).raise_for_status()
            assert "a" in resident(server), "a model in use went"
        heard = len(stream.lines)
        eventually(lambda: len(stream.lines) > heard + 10, WAIT_SECONDS)
    assert not any('"error"' in line or "[DONE]" in line for line in stream.lines)
    assert "f" in resident(server) and len(resident(server)) < len(NAMES)
    evictions = {Path(one["model_id"]).name: one["reason"] for one in inventory(server)["last_evictions"]}
    assert set(evictions) == set(NAMES) - resident(server)
    assert set(evictions.values()) <= {"room", "memory"} and "room" in evictions.values()
    assert cgroup.oom_kills == 0


def test_a_model_that_can_never_fit_is_refused_with_the_numbers(
    server: RunningServer, cgroup: MemoryCgroup, tmp_path: Path
) -> None:
    make_weighty_model(tmp_path / "huge", 1500)
    before = resident(server)
    try:
        refused = load(server, str(tmp_path / "huge"))
    finally:
        shutil.rmtree(tmp_path / "huge")
    assert refused.status_code == 507, refused.text
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (507, "insufficient_memory")
    assert error["needed_bytes"] > error["available_bytes"] >= 0
    assert resident(server) == before, "models went for a load that cannot fit"
    assert cgroup.oom_kills == 0


def test_memory_that_grows_past_the_threshold_lets_the_longest_unused_go(
    server: RunningServer, cgroup: MemoryCgroup, weights: dict[str, str]
) -> None:
    server.client.post("/v1/flexserv/models/unload", json={"model_id": "*"}).raise_for_status()
    cgroup.limit_bytes = BASE_BYTES + 4 * MEGABYTES * 1_000_000
    for name in "abc":
        assert load(server, weights[name]).status_code == 200
        server.client.post("/v1/chat/completions", json=chat(weights[name], 2)).raise_for_status()

    def somebody_went() -> bool:
        """As if the process had grown: the same use is a little above 90 %, and anew when it has fallen."""
        container = server.client.get("/v1/flexserv/resources").json()["container"]
        share = container["used_percentage"] / 100
        went = len(resident(server)) < 3
        if not went and share < 0.91:
            cgroup.limit_bytes = int(cgroup.limit_bytes * share / 0.93)
        return went

    eventually(somebody_went, WAIT_SECONDS)
    eventually(lambda: "a" not in resident(server), WAIT_SECONDS)
    assert "c" in resident(server), "more went than was needed"
    gone = next(one for one in inventory(server)["last_evictions"] if one["model_id"] == weights["a"])
    assert gone["reason"] == "memory"
    assert "WARNING" in server.log() and "RAM" in server.log().upper()
    assert cgroup.oom_kills == 0
    assert server.client.get("/health").status_code == 200


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"], ids=["as stored", "with a cast"])
def test_the_reading_falls_when_a_model_goes(
    server: RunningServer, cgroup: MemoryCgroup, weights: dict[str, str], dtype: str
) -> None:
    """Weights that need no cast are pages of the file, which other measures never see fall."""

    def used() -> float:
        container = server.client.get("/v1/flexserv/resources").json()["container"]
        return float(container["used_percentage"]) / 100 * cgroup.limit_bytes

    server.client.post("/v1/flexserv/models/unload", json={"model_id": "*"}).raise_for_status()
    cgroup.limit_bytes = BASE_BYTES + 4 * MEGABYTES * 1_000_000
    before = used()
    assert load(server, weights["a"], dtype=dtype).status_code == 200
    server.client.post("/v1/chat/completions", json=chat(weights["a"], 2)).raise_for_status()
    held = used() - before
    share = 1.0 if dtype == "auto" else 0.5
    assert held > 0.7 * share * MEGABYTES * 1_000_000
    server.client.post("/v1/flexserv/models/unload", json={"model_id": weights["a"]}).raise_for_status()
    eventually(lambda: used() - before < 0.3 * held, WAIT_SECONDS)
