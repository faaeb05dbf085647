"""Models from a hub: downloads with progress, what can go wrong, and a stop in the middle."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.hub import CHUNK, Hub
from tests.support.models import model_path
from tests.support.server import RunningServer

CACHE_LIMIT = 20 * CHUNK


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    tiny = Path(model_path("tiny-random-llama"))
    both = tmp_path_factory.mktemp("both")
    shutil.copytree(tiny, both, dirs_exist_ok=True)
    (both / "pytorch_model.bin").write_bytes(b"the same weights again")
    (both / "onnx").mkdir()
    (both / "onnx" / "model.onnx").write_bytes(b"for another runtime")
    large = tmp_path_factory.mktemp("large")
    shutil.copytree(tiny, large, dirs_exist_ok=True)
    with (large / "extra.safetensors").open("wb") as file:
        file.truncate(5 * CHUNK)
    huge = tmp_path_factory.mktemp("huge")
    shutil.copytree(tiny, huge, dirs_exist_ok=True)
    with (huge / "extra.safetensors").open("wb") as file:
        file.truncate(CACHE_LIMIT)
    bare = tmp_path_factory.mktemp("bare")
    (bare / "README.md").write_text("nothing to load")
    folders = {"org/both": both, "org/large": large, "org/huge": huge, "org/bare": bare}
    refusals = {"org/gated": (403, "GatedRepo"), "org/broken": (500, "InternalError")}
    with Hub(folders, refusals) as hub:
        yield hub


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hf-home")


@pytest.fixture(scope="module")
def server(hub: Hub, home: Path) -> Iterator[RunningServer]:
    env = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    with RunningServer("--device", "cpu", "--cache-limit-bytes", str(CACHE_LIMIT), env=env) as server:
        yield server


def load(server: RunningServer, model_id: str, **body: Any) -> httpx.Response:
    return server.client.post("/v1/flexserv/models/load", json={"model_id": model_id, "wait": 60, **body})


@pytest.mark.usefixtures("server")
def test_hugging_faces_own_tool_finds_the_cache_before_the_first_download(home: Path) -> None:
    result = subprocess.run(
        [str(Path(sys.executable).with_name("hf")), "cache", "ls"],
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_download_takes_what_is_needed_and_remembers_the_commit(server: RunningServer, hub: Hub) -> None:
    response = load(server, "org/both")
    assert (response.status_code, response.json()["status"]) == (200, "loaded"), response.text
    models = server.client.get("/v1/flexserv/models/loaded").json()["models"]
    (model,) = [model for model in models if model["model_id"] == "org/both"]
    assert model["commit"] == hub.commit("org/both")
    files = {name.removeprefix("org/both/") for name in hub.served if name.startswith("org/both/")}
    assert "model.safetensors" in files
    assert not files & {"pytorch_model.bin", "onnx/model.onnx"}
    chat = {"model": "org/both", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    assert server.client.post("/v1/chat/completions", json=chat).json()["model"] == "org/both"
    names = {model["id"] for model in server.client.get("/v1/models").json()["data"]}
    assert "org/both" in names


def test_a_model_that_can_never_fit_into_memory_is_not_downloaded(server: RunningServer, hub: Hub) -> None:
    hub.repositories["org/giant"] = hub.repositories["org/both"]
    hub.weights["org/giant"] = {"F32": 10**13, "I64": 1}
    response = load(server, "org/giant", dtype="bfloat16")
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (507, "insufficient_memory")
    assert error["needed_bytes"] == pytest.approx(2 * 10**13 * 1.05)
    assert 0 < error["available_bytes"] < error["needed_bytes"]
    assert not [name for name in hub.served if name.startswith("org/giant/")]


def test_a_second_load_downloads_nothing(server: RunningServer, hub: Hub) -> None:
    assert load(server, "org/both").status_code == 200
    server.client.post("/v1/flexserv/models/unload", json={"model_id": "org/both"}).raise_for_status()
    before = list(hub.served)
    assert load(server, "org/both", revision=hub.commit("org/both")).status_code == 200
    assert hub.served == before


@pytest.mark.parametrize(
    ("model_id", "revision", "expected"),
    [
        ("org/absent", None, (404, "model_not_found")),
        ("org/both", "no-such-branch", (404, "model_not_found")),
        ("org/gated", None, (403, "model_gated")),
        # The hub's client tries again for 20 seconds.
        pytest.param("org/broken", None, (502, "hub_unavailable"), marks=pytest.mark.full),
        ("org/bare", None, (422, "unsupported_model")),
    ],
)
def test_what_the_hub_refuses_has_its_own_code(
    server: RunningServer, model_id: str, revision: str | None, expected: tuple[int, str]
) -> None:
    response = load(server, model_id, revision=revision)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == expected
    assert model_id in error["message"]
    assert "hf-home" not in error["message"] and "127.0.0.1" not in error["message"]


def test_a_model_that_the_cache_cannot_hold_is_refused_before_its_download(
    server: RunningServer, hub: Hub
) -> None:
    response = load(server, "org/huge")

    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (507, "insufficient_storage")
    assert error["needed_bytes"] > CACHE_LIMIT >= error["available_bytes"]
    failed = server.client.get("/v1/flexserv/models/loaded").json()["failed"]
    (seen,) = [one for one in failed if one["model_id"] == "org/huge"]
    assert (seen["code"], seen["needed_bytes"]) == ("insufficient_storage", error["needed_bytes"])
    assert not [name for name in hub.served if name.startswith("org/huge/")]


def test_an_unload_stops_a_download_in_the_middle(server: RunningServer, hub: Hub) -> None:
    load(server, "org/large", wait=0)

    def downloading() -> dict[str, Any] | None:
        jobs = server.client.get("/v1/flexserv/models/loaded").json()["loading"]
        return next((job for job in jobs if job["stage"] == "download" and job["done"] >= CHUNK), None)

    job = eventually(downloading, 30)
    assert job is not None and job["total"] >= 5 * CHUNK
    # Another model is not held up by a download.
    assert load(server, model_path("tiny-random-llama")).status_code == 200
    reply = server.client.post("/v1/flexserv/models/unload", json={"model_id": "org/large"}).json()
    assert reply["unloaded"][0]["was_loading"] is True
    hub.gate.set()
    eventually(lambda: "the load of org/large was aborted" in server.log(), 30)
    names = {model["model_id"] for model in server.client.get("/v1/flexserv/models/loaded").json()["models"]}
    assert "org/large" not in names
