"""The server killed at the worst moments: the next one starts clean, and what was cached is as it was."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.hub import CHUNK, Hub
from tests.support.memory_cgroup import MemoryCgroup
from tests.support.models import model_path
from tests.support.server import RunningServer
from tests.support.weighty_models import make_weighty_model

pytestmark = pytest.mark.timeout(400)

KILLED = -9
WAIT_SECONDS = 60
CACHED = "org/cached"
AMPLE_BYTES = 3_000_000_000
SQUEEZED = 0.91


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """`org/cached` comes at once; `org/endless` stops after its first piece."""
    weighty, endless = tmp_path_factory.mktemp("cached"), tmp_path_factory.mktemp("endless")
    make_weighty_model(weighty, 60)
    make_weighty_model(endless, 10)
    with (endless / "extra.safetensors").open("wb") as file:
        file.truncate(5 * CHUNK)
    with Hub({CACHED: weighty, "org/endless": endless}, {}) as hub:
        hub.gate.set()
        yield hub


@pytest.fixture(scope="module")
def start(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., RunningServer]:
    """Start a server on the one cache and the one state folder that all of them share."""
    home, state = tmp_path_factory.mktemp("hf-home"), tmp_path_factory.mktemp("state")
    env = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}

    def start(*flags: str, **options: Any) -> RunningServer:
        return RunningServer("--device", "cpu", "--state-dir", str(state), *flags, env=env, **options)

    return start


@pytest.fixture(scope="module")
def cache(start: Callable[..., RunningServer], tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """What the hub's cache holds of a model that was fetched whole: files and their digests."""
    with start() as server:
        load(server, CACHED)
        base = tmp_path_factory.getbasetemp()
    snapshot = next(base.glob("hf-home*/hub/models--org--cached/snapshots/*"))
    return {file: digest(file) for file in snapshot.iterdir()}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def load(server: RunningServer, name: str, wait: int = WAIT_SECONDS) -> None:
    body = {"model_id": name, "wait": wait}
    server.client.post("/v1/flexserv/models/load", json=body).raise_for_status()


def inventory(server: RunningServer) -> dict[str, Any]:
    return server.client.get("/v1/flexserv/models/loaded").raise_for_status().json()  # type: ignore[no-any-return]


def chat(name: str, tokens: int, **fields: Any) -> dict[str, Any]:
    return {"model": name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": tokens, **fields}


def reach_nothing_to_do(server: RunningServer, hub: Hub) -> str | None:
    load(server, CACHED)
    return None


def reach_a_load(server: RunningServer, hub: Hub) -> str | None:
    """A GGUF file takes seconds to unpack."""
    path = f"{model_path('SmolLM2-135M-Instruct-GGUF')}:SmolLM2-135M-Instruct.Q4_1.gguf"
    load(server, path, wait=0)
    eventually(lambda: stages(server) == ["weights"], WAIT_SECONDS, interval=0.02)
    return path


def reach_a_download(server: RunningServer, hub: Hub) -> str | None:
    hub.gate.clear()
    load(server, "org/endless", wait=0)
    eventually(lambda: [job for job in inventory(server)["loading"] if job["done"]], WAIT_SECONDS)
    return None


def reach_a_generation(server: RunningServer, hub: Hub) -> str | None:
    load(server, CACHED)

    def read() -> None:
        body = chat(CACHED, 4000, stream=True)
        with suppress(httpx.TransportError):
            httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=WAIT_SECONDS)

    threading.Thread(target=read, daemon=True).start()
    eventually(lambda: inventory(server)["models"][0]["active_requests"] == 1, WAIT_SECONDS)
    return None


def stages(server: RunningServer) -> list[str]:
    return [job["stage"] for job in inventory(server)["loading"]]


def kill(server: RunningServer) -> None:
    server.process.kill()
    assert server.process.wait(WAIT_SECONDS) == KILLED


@contextmanager
def the_next(
    start: Callable[..., RunningServer], cache: dict[Path, str], crashed: str | None = None
) -> Iterator[RunningServer]:
    """A server that starts clean, but for the load that `crashed` the one before, on a cache as it was."""
    assert {file: digest(file) for file in cache} == cache
    with start() as server:
        told = inventory(server)
        assert (told["models"], told["loading"], told["failed"]) == ([], [], [])
        assert [one["model_id"] for one in told["crashed_loading"]] == ([crashed] if crashed else [])
        yield server
        assert server.client.post("/v1/chat/completions", json=chat(CACHED, 2)).status_code == 200


@pytest.mark.parametrize(
    "reach",
    [reach_nothing_to_do, reach_a_load, reach_a_download, reach_a_generation],
    ids=lambda reach: reach.__name__.removeprefix("reach_"),
)
def test_a_kill_in_the_middle_of(
    reach: Callable[[RunningServer, Hub], str | None],
    start: Callable[..., RunningServer],
    hub: Hub,
    cache: dict[Path, str],
) -> None:
    hub.gate.set()
    with start(expected_exit=KILLED) as server:
        crashed = reach(server, hub)
        kill(server)
    hub.gate.set()

    with the_next(start, cache, crashed) as server:
        if crashed:
            refused = server.client.post("/v1/chat/completions", json=chat(crashed, 1))
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_quarantined")
            load(server, crashed)
            assert inventory(server)["crashed_loading"] == []
        if reach is reach_a_download:
            load(server, "org/endless")


@pytest.mark.skipif(os.geteuid() != 0, reason="a cgroup needs root")
def test_a_kill_in_the_middle_of_an_eviction(
    start: Callable[..., RunningServer], hub: Hub, cache: dict[Path, str]
) -> None:
    """The monitor has taken the model from its request, which keeps the memory until it ends."""
    hub.gate.set()
    monitor = ("--oom-monitor", "--oom-check-interval", "0.2", "--oom-eviction", "all")
    with (
        MemoryCgroup(AMPLE_BYTES) as cgroup,
        start(*monitor, inside=cgroup.command, expected_exit=KILLED) as server,
    ):
        reach_a_generation(server, hub)

        def leaves() -> list[dict[str, Any]]:
            """Above the threshold of 90 %, and anew when the use has fallen since."""
            container = server.client.get("/v1/flexserv/resources").json()["container"]
            share = container["used_percentage"] / 100
            unloading: list[dict[str, Any]] = inventory(server)["unloading"]
            if not unloading and share < SQUEEZED:
                cgroup.limit_bytes = int(cgroup.limit_bytes * share / (SQUEEZED + 0.02))
            return unloading

        (leaving,) = eventually(leaves, WAIT_SECONDS, interval=0.02)
        assert leaving["active_requests"] == 1
        assert [one["reason"] for one in inventory(server)["last_evictions"]] == ["memory"]
        kill(server)

    with the_next(start, cache):
        pass
