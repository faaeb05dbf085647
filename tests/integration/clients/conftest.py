"""One real server for all clients, with a model that chats, an encoder and a transcriber in memory."""

from collections.abc import Iterator

import pytest

from tests.support.models import model_path
from tests.support.server import RunningServer

ADMIN_TOKEN = "admin-of-this-test-only"
MAX_QUEUE = 1
QUESTION = "What is the capital of France?"
LOADS = [
    {"model_id": "SmolLM2-135M-Instruct", "served_name": "smollm2"},
    {"model_id": "all-MiniLM-L6-v2", "served_name": "minilm", "kind": "embedding"},
    {"model_id": "tiny-random-whisper", "served_name": "whisper"},
]


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """All may ask; only who has the admin token may load."""
    flags = ["--device", "cpu", "--dtype", "float32", "--max-queue", str(MAX_QUEUE)]
    with RunningServer(*flags, "--admin-token", ADMIN_TOKEN) as server:
        for load in LOADS:
            body = {**load, "model_id": model_path(load["model_id"]), "wait": 60}
            headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
            server.client.post("/v1/flexserv/models/load", json=body, headers=headers).raise_for_status()
        yield server


@pytest.fixture(scope="session")
def api(server: RunningServer) -> str:
    """What a client is configured with."""
    return f"{server.base_url}/v1"


@pytest.fixture(scope="session")
def greedy_answer(server: RunningServer) -> str:
    """The answer to QUESTION in 16 tokens at temperature 0, as plain HTTP gets it."""
    body = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 16,
    }
    reply = server.client.post("/v1/chat/completions", json=body).raise_for_status().json()
    text: str = reply["choices"][0]["message"]["content"]
    assert "Paris" in text
    return text
