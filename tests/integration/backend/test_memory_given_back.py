"""Freeing really frees: twenty times in and out again, and the process is what it was."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.model_copies import encoder_of
from tests.support.models import model_path
from tests.support.server import RunningServer

CYCLES = 20
SETTLED = 3
"""After so many cycles everything that is made once (imports, pools, caches of the libraries) is there."""
WAIT_SECONDS = 60


def in_and_out(server: RunningServer, text: str, encoder: str) -> int:
    """Load both, use both, unload both; the process's resident bytes after that."""
    load(server, text)
    load(server, encoder, kind="embedding")
    message = {"role": "user", "content": "What is the capital of France?"}
    chat = {"model": text, "messages": [message], "max_tokens": 4}
    server.client.post("/v1/chat/completions", json=chat).raise_for_status()
    embed = {"model": encoder, "input": ["one", "two"]}
    server.client.post("/v1/embeddings", json=embed).raise_for_status()
    server.client.post("/v1/flexserv/models/unload", json={}).raise_for_status()
    inventory = server.client.get("/v1/flexserv/models/loaded").json()
    assert inventory["models"] == inventory["unloading"] == []
    return server.resident_bytes()


def load(server: RunningServer, path: str, **settings: Any) -> None:
    body = {"model_id": path, "wait": WAIT_SECONDS, **settings}
    reply = server.client.post("/v1/flexserv/models/load", json=body)
    assert (reply.status_code, reply.json()["status"]) == (200, "loaded"), reply.text


def threads(server: RunningServer) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


@pytest.mark.timeout(400)
def test_twenty_loads_and_unloads_leave_neither_memory_nor_threads_behind(tmp_path: Path) -> None:
    text, encoder = model_path("SmolLM2-135M-Instruct"), model_path("all-MiniLM-L6-v2")
    tiny = model_path("tiny-random-llama")
    with RunningServer("--device", "cpu") as fresh:
        # The same code paths, with weights that do not show: a server that imported the same libraries.
        imported = in_and_out(fresh, tiny, encoder_of("tiny-random-llama", tmp_path))
    with RunningServer("--device", "cpu") as server:
        after: list[int] = []
        for cycle in range(1, CYCLES + 1):
            after.append(in_and_out(server, text, encoder))
            if cycle == SETTLED:
                settled_threads = threads(server)
        settled, last = after[SETTLED - 1], after[-1]
        figures = [round(size / 2**20) for size in after]
        assert last < settled * 1.02, f"MiB after each cycle: {figures}"
        assert last < imported + 150 * 2**20, f"{imported / 2**20:.0f} MiB fresh; {figures}"
        eventually(lambda: threads(server) <= settled_threads, 20)
