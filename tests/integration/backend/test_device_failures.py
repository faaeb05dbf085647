"""What torch raises when a device fails, injected into real models behind the real application."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import torch
from fastapi.testclient import TestClient
from hf_transformers_backend.app import build_app
from hf_transformers_backend.identity import Kind
from hf_transformers_backend.settings import load_settings
from hf_transformers_backend.upstream import loading

from tests.support.models import model_path

ASSERTED = "CUDA error: device-side assert triggered"
RAN_OUT = "CUDA out of memory. Tried to allocate 20.00 GiB"
LLAMA, MINILM = "tiny-random-llama", "all-MiniLM-L6-v2"


@contextmanager
def server(**settings: Any) -> Iterator[TestClient]:
    with TestClient(build_app(load_settings(device="cpu", **settings))) as client:
        yield client


def load(client: TestClient, name: str, kind: Kind = "serve") -> httpx.Response:
    body = {"model_id": model_path(name), "kind": kind, "wait": True}
    return client.post("/v1/flexserv/models/load", json=body)


def break_forward(client: TestClient, name: str, kind: Kind, error: Exception) -> Callable[[], None]:
    """From now on the loaded model raises `error`; call what is returned to repair it."""
    residency: Any = client.app.state.backend.residency  # type: ignore[attr-defined]

    def fail(*_: Any) -> None:
        raise error

    with client.portal.call(residency.acquire, model_path(name), kind) as lease:  # type: ignore[union-attr]
        model: torch.nn.Module = lease.model.model
        hooks = [module.register_forward_pre_hook(fail) for module in (model, *model.children())]
    return lambda: [hook.remove() for hook in hooks] and None


def chat(client: TestClient, *, stream: bool = False) -> httpx.Response:
    body = {"model": model_path(LLAMA), "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
    return client.post("/v1/chat/completions", json={**body, "temperature": 0, "stream": stream})


def embed(client: TestClient) -> httpx.Response:
    return client.post("/v1/embeddings", json={"model": model_path(MINILM), "input": "hi"})


def assert_failed(client: TestClient) -> None:
    """Liveness says so, readiness says so, and neither a model in memory nor a load is given any more."""
    assert client.get("/health").json() == {"status": "failed", "reason": ASSERTED}
    assert client.get("/health").status_code == 500
    ready = client.get("/v1/flexserv/health")
    assert (ready.status_code, ready.json()["status"]) == (503, "failed")
    for refused in (chat(client), load(client, "tiny-random-gpt2")):
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "device_failed")
        assert int(refused.headers["Retry-After"]) > 0


@pytest.mark.parametrize(("batching", "stream"), [(False, False), (False, True), (True, False)])
def test_a_fault_while_generating_fails_the_server(batching: bool, stream: bool) -> None:
    with server(continuous_batching=batching) as client:
        assert load(client, LLAMA).status_code == 200
        if batching:
            assert chat(client).status_code == 200
        break_forward(client, LLAMA, "serve", torch.AcceleratorError(ASSERTED))
        assert chat(client, stream=stream).status_code in (500, 503)
        assert_failed(client)


def test_a_fault_while_encoding_fails_the_server() -> None:
    with server() as client:
        assert load(client, MINILM, "embedding").status_code == 200
        break_forward(client, MINILM, "embedding", torch.AcceleratorError(ASSERTED))
        assert embed(client).status_code == 500
        assert_failed(client)


def test_a_fault_while_loading_fails_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise torch.AcceleratorError(ASSERTED)

    with server() as client:
        monkeypatch.setattr(loading, "load_served_model", fail)
        failed = load(client, LLAMA)
        assert (failed.status_code, failed.json()["error"]["code"]) == (500, "load_failed")
        assert_failed(client)


def test_memory_that_runs_out_during_a_request_is_a_503_and_the_next_one_is_served() -> None:
    with server() as client:
        assert load(client, LLAMA).status_code == 200
        assert load(client, MINILM, "embedding").status_code == 200
        repairs = [
            break_forward(client, LLAMA, "serve", torch.OutOfMemoryError(RAN_OUT)),
            break_forward(client, MINILM, "embedding", torch.OutOfMemoryError(RAN_OUT)),
        ]
        for refused in (chat(client), embed(client)):
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "insufficient_memory")
            assert int(refused.headers["Retry-After"]) > 0
        for repair in repairs:
            repair()
        assert client.get("/health").status_code == 200
        assert chat(client).status_code == embed(client).status_code == 200


@pytest.mark.parametrize(("times", "status"), [(1, 200), (2, 507)])
def test_a_load_that_runs_out_of_memory_is_tried_once_more_with_an_idle_model_gone(
    monkeypatch: pytest.MonkeyPatch, times: int, status: int
) -> None:
    real, left = loading.load_served_model, [torch.OutOfMemoryError(RAN_OUT) for _ in range(times)]

    def fail_at_first(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return real(*arguments)

    with server() as client:
        assert load(client, "tiny-random-gpt2").status_code == 200
        monkeypatch.setattr(loading, "load_served_model", fail_at_first)
        reply = load(client, LLAMA)
        assert reply.status_code == status, reply.text
        inventory = client.get("/v1/flexserv/models/loaded").json()
        assert {one["reason"] for one in inventory["last_evictions"]} == {"room"}
        if status == 507:
            error, (failure,) = reply.json()["error"], inventory["failed"]
            assert error["code"] == failure["code"] == "insufficient_memory"
            assert error["needed_bytes"] == failure["needed_bytes"] > 0
            assert error["available_bytes"] == failure["available_bytes"] > error["needed_bytes"]
        assert load(client, LLAMA).status_code == 200
        assert chat(client).status_code == 200
        assert client.get("/health").status_code == 200
