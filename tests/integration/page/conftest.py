"""One browser and one real server with tokens, a hub beside it, for all tests of the page."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import chromium
from tests.support.hub import CHUNK, Hub
from tests.support.models import model_path
from tests.support.server import RunningServer

USER_TOKEN, ADMIN_TOKEN = "reads-and-chats", "loads-and-unloads"
WAIT_SECONDS = 60


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """`org/large` is a download that stops after its first piece until the gate is opened."""
    large = tmp_path_factory.mktemp("large")
    shutil.copytree(model_path("tiny-random-llama"), large, dirs_exist_ok=True)
    with (large / "extra.safetensors").open("wb") as file:
        file.truncate(5 * CHUNK)
    with Hub({"org/large": large}, {}) as hub:
        yield hub


@pytest.fixture(scope="session")
def shared_server(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("hf-home")
    env = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    flags = ("--device", "cpu", "--oom-monitor", "--oom-ram-threshold", "97", "--oom-check-interval", "3600")
    tokens = ("--flexserv-token", USER_TOKEN, "--admin-token", ADMIN_TOKEN)
    default = ("--default-model", model_path("SmolLM2-135M-Instruct"))
    with RunningServer(*flags, *tokens, *default, env=env) as server:
        server.client.headers["Authorization"] = f"Bearer {ADMIN_TOKEN}"
        server.wait_until_ready()
        yield server


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    """The shared server with nothing but its default model in memory."""
    loaded = shared_server.client.get("/v1/flexserv/models/loaded").raise_for_status().json()
    for model in loaded["models"] + loaded["loading"]:
        if not model.get("default"):
            body = {"model_id": model["model_id"]}
            shared_server.client.post("/v1/flexserv/models/unload", json=body).raise_for_status()
    return shared_server


@pytest.fixture
def complaints() -> list[str]:
    """What the browser's console or a script complained of; each test ends with it empty."""
    return []


@pytest.fixture
def asked() -> list[str]:
    """Every address that the page asked for."""
    return []


@pytest.fixture
def page(browser: Browser, complaints: list[str], asked: list[str]) -> Iterator[Page]:
    """A fresh tab of a fresh profile. A refused request (4xx) is no complaint: the page must show it."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    context.set_default_timeout(WAIT_SECONDS * 1000)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            if message.type in ("error", "warning") and "Failed to load resource" not in message.text
            else None
        ),
    )
    page.on("request", lambda request: asked.append(request.url))
    yield page
    context.close()
    assert complaints == []
