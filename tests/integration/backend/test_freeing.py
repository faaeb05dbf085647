"""Each thing that an unload gives back, of real models: it was there before, and is not afterwards."""

import gc
import re
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hf_transformers_backend.app import build_app
from hf_transformers_backend.generation.batching import Batching
from hf_transformers_backend.generation.engine import Engine
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.loader import LoadAborted, Source
from hf_transformers_backend.model_loader import ModelLoader
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.settings import load_settings

from tests.support.eventually import eventually
from tests.support.models import model_path

WAIT_SECONDS = 20


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def held_parts(client: TestClient, name: str, kind: Kind) -> dict[str, "weakref.ref[Any]"]:
    """Weak references to all that one model consists of here."""
    residency: Any = client.app.state.backend.residency  # type: ignore[attr-defined]
    with client.portal.call(residency.acquire, model_path(name), kind) as lease:  # type: ignore[union-attr]
        served = lease.model
        whole = {"served": served, "model": served.model, "executor": served.executor}
        whole["weights"] = next(served.model.parameters())
        whole["processor"] = served.processor if kind == "serve" else served.model.tokenizer
        # Not with isinstance: that would ask each object for its class, which some of the world refuse.
        ours = [one for one in gc.get_objects() if type(one) in (Engine, Batching)]
        for value in ours:
            if getattr(value, "served", None) is served or getattr(value, "_served", None) is served:
                whole[type(value).__name__] = value
        return {name: weakref.ref(value) for name, value in whole.items()}


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def model_threads() -> set[str]:
    owned = ("flexserv-model", "prompt-", "ContinuousBatching", "Thread-")
    return {name for name in threads() if name.startswith(owned)}


def use(client: TestClient, name: str, kind: Kind) -> None:
    path = model_path(name)
    body = {"model_id": path, "kind": kind, "wait": True}
    client.post("/v1/flexserv/models/load", json=body).raise_for_status()
    if kind == "embedding":
        client.post("/v1/embeddings", json={"model": path, "input": "hi"}).raise_for_status()
        return
    chat = {"model": path, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    client.post("/v1/chat/completions", json=chat).raise_for_status()


@pytest.mark.parametrize(
    ("name", "kind", "batching", "parts"),
    [
        ("tiny-random-llama", "serve", False, {"processor", "Engine"}),
        ("tiny-random-llama", "serve", True, {"processor", "Engine", "Batching"}),
        ("all-MiniLM-L6-v2", "embedding", False, {"processor"}),
    ],
    ids=["a generator", "a generator with its batch", "an encoder"],
)
def test_nothing_of_an_unloaded_model_is_left(name: str, kind: Kind, batching: bool, parts: set[str]) -> None:
    with TestClient(build_app(load_settings(device="cpu", continuous_batching=batching))) as client:
        before = model_threads()
        use(client, name, kind)
        held = held_parts(client, name, kind)
        assert parts | {"model", "weights", "executor", "served"} <= held.keys()
        assert model_threads() - before
        client.post("/v1/flexserv/models/unload", json={}).raise_for_status()

        def nothing_is_left() -> bool:
            gc.collect()
            assert [part for part, reference in held.items() if reference() is not None] == []
            return True

        eventually(nothing_is_left, WAIT_SECONDS / 2)
        eventually(lambda: model_threads() <= before, WAIT_SECONDS)


def mapped_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssFile:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def test_weights_in_a_mapped_file_are_in_memory_when_the_load_is_done(executor: ThreadPoolExecutor) -> None:
    """Else the next load would be let into memory that the first request of this one takes."""
    path = Path(model_path("SmolLM2-135M-Instruct"))
    load, identity = ModelLoader("cpu").load, ModelIdentity(str(path))
    before = mapped_bytes()
    served = executor.submit(
        load, identity, Source(path), LoadSettings(), executor, lambda done, total: None
    ).result()
    assert mapped_bytes() - before > 0.9 * served.bytes > 400_000_000


def test_a_load_can_be_ended_while_its_weights_come_into_memory(executor: ThreadPoolExecutor) -> None:
    path = Path(model_path("tiny-random-llama"))
    calls: list[int] = []

    def end_at_the_last(done: int, total: int | None) -> None:
        calls.append(done)
        if done == total and calls.count(done) == 3:
            raise LoadAborted

    load = ModelLoader("cpu").load
    job = executor.submit(
        load, ModelIdentity(str(path)), Source(path), LoadSettings(), executor, end_at_the_last
    )
    with pytest.raises(LoadAborted):
        job.result()
