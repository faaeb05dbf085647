"""What keeps one caller, or too many, from taking the server from all others."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.hub import CHUNK, Hub
from tests.support.models import model_path
from tests.support.server import RunningServer

BODY_LIMIT = 20_000
LOAD_WAIT = 1.5
SLOW = "org/slow"
ENDLESS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 100_000,
    "logit_bias": {"2": -100, "0": -100},
}
"""As long as the context allows: thousands of tokens."""


@pytest.fixture(scope="module")
def llama() -> str:
    return model_path("tiny-random-llama")


@pytest.fixture(scope="module")
def smol() -> str:
    """Slow enough to be busy for as long as a test needs."""
    return model_path("SmolLM2-135M-Instruct")


@pytest.fixture(scope="module")
def hub(llama: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Sends the beginning of a large file, and the rest when its gate is opened."""
    slow = tmp_path_factory.mktemp("slow")
    shutil.copytree(Path(llama), slow, dirs_exist_ok=True)
    with (slow / "extra.safetensors").open("wb") as file:
        file.truncate(2 * CHUNK)
    with Hub({SLOW: slow}, {}) as running:
        yield running


@pytest.fixture(scope="module")
def server(
    hub: Hub, llama: str, smol: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    flags = {
        "--device": "cpu",
        "--max-queue": "1",
        "--load-wait": str(LOAD_WAIT),
        "--max-request-bytes": str(BODY_LIMIT),
    }
    env = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HOME": str(tmp_path_factory.mktemp("hf-home")),
        "HF_HUB_DISABLE_XET": "1",
    }
    with RunningServer(*[word for pair in flags.items() for word in pair], env=env) as running:
        for name in (llama, smol, model_path("tiny-random-gpt2")):
            body = {"model_id": name, "wait": 60}
            running.client.post("/v1/flexserv/models/load", json=body).raise_for_status()
        yield running


def leased(server: RunningServer, model: str) -> int:
    models = server.client.get("/v1/flexserv/models/loaded").json()["models"]
    return next(int(one["active_requests"]) for one in models if one["model_id"] == model)


def post(server: RunningServer, **fields: Any) -> httpx.Response:
    return httpx.post(f"{server.base_url}/v1/chat/completions", json=fields, timeout=120)


@contextmanager
def a_long_answer(server: RunningServer, model: str) -> Iterator[None]:
    """A stream that has begun and is not read any further: it holds its place until it is closed."""
    body = {"model": model, **ENDLESS, "stream": True}
    with (
        httpx.Client(base_url=server.base_url, timeout=60) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as stream,
    ):
        assert stream.status_code == 200
        lines = stream.iter_lines()
        assert any("content" in line for line in lines)
        yield
        assert lines is not None  # httpx closes the stream with its iterator


@pytest.mark.parametrize("stream", [False, True])
def test_a_models_queue_is_full_and_others_are_served(server: RunningServer, smol: str, stream: bool) -> None:
    waiting: list[httpx.Response] = []
    short = {"model": smol, **ENDLESS, "max_tokens": 2}
    with a_long_answer(server, smol):
        thread = threading.Thread(target=lambda: waiting.append(post(server, **short)))
        thread.start()
        try:
            eventually(lambda: leased(server, smol) == 2, 30)
            refused = post(server, **short, stream=stream)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "queue_full")
            assert float(refused.headers["retry-after"]) >= 1
            assert "event-stream" not in refused.headers["content-type"]
            other = {"model": model_path("tiny-random-gpt2"), "prompt": "hi", "max_tokens": 2}
            server.client.post("/v1/completions", json=other).raise_for_status()
        finally:
            closed = time.monotonic()
    thread.join(60)
    assert [answer.status_code for answer in waiting] == [200]
    assert time.monotonic() - closed < 60
    eventually(lambda: leased(server, smol) == 0, 30)
    assert post(server, **short).status_code == 200


def test_a_request_waits_for_a_load_no_longer_than_it_is_told(server: RunningServer, hub: Hub) -> None:
    body = {"model": SLOW, **ENDLESS, "max_tokens": 2}
    for stream in (False, True):
        began = time.monotonic()
        answer = post(server, **body, stream=stream)
        took = time.monotonic() - began
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_loading")
        assert "event-stream" not in answer.headers["content-type"]
        assert float(answer.headers["retry-after"]) >= 1
        assert LOAD_WAIT <= took < LOAD_WAIT + 30
    # The load went on without its first requests: once the files are here, the next one is served.
    hub.gate.set()
    assert eventually(lambda: post(server, **body).status_code == 200, 90)


def padded(size: int, model: str) -> bytes:
    """A chat of exactly that many bytes."""
    body = {"model": model, **ENDLESS, "max_tokens": 1, "user": ""}
    return json.dumps({**body, "user": "x" * (size - len(json.dumps(body)))}).encode()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_be_as_large_as_the_limit_and_no_larger(
    server: RunningServer, llama: str, chunked: bool
) -> None:
    def send(route: str, body: bytes, content_type: str) -> httpx.Response:
        def pieces() -> Iterator[bytes]:
            yield from (body[start : start + 4096] for start in range(0, len(body), 4096))

        return server.client.post(
            f"/v1/{route}", content=pieces() if chunked else body, headers={"Content-Type": content_type}
        )

    assert send("chat/completions", padded(BODY_LIMIT, llama), "application/json").status_code == 200
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + b"x" * BODY_LIMIT
    for route, body, content_type in (
        ("chat/completions", padded(BODY_LIMIT + 1, llama), "application/json"),
        ("responses", padded(10 * BODY_LIMIT, llama), "application/json"),
        ("embeddings", padded(BODY_LIMIT + 1, llama), "application/json"),
        ("audio/transcriptions", form + b"\r\n--b--\r\n", "multipart/form-data; boundary=b"),
    ):
        refused = send(route, body, content_type)
        assert (refused.status_code, refused.json()["error"]["type"]) == (413, "invalid_request_error"), route
        assert str(BODY_LIMIT) in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("chat/completions", b'{"messages": ' + b"[" * 6000 + b"]" * 6000 + b"}"),
        ("chat/completions", b'{"metadata": ' + b'{"a":' * 2500 + b"1" + b"}" * 2500 + b"}"),
        ("responses", b'{"input": ' + b"[" * 6000 + b"]" * 6000 + b"}"),
        ("completions", json.dumps({"prompt": ["a"] * 129}).encode()),
        ("completions", json.dumps({"prompt": "a", "stop": ["b"] * 17}).encode()),
    ],
)
def test_what_fits_the_limit_and_is_still_too_much_is_a_400(
    server: RunningServer, route: str, body: bytes
) -> None:
    assert len(body) < BODY_LIMIT
    refused = server.client.post(f"/v1/{route}", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")


def test_a_client_that_does_not_read_its_stream_holds_up_nobody(server: RunningServer, llama: str) -> None:
    """Its answer ends up in the server's memory, bounded by the context; others get their turn."""
    body = json.dumps({"model": llama, **ENDLESS, "max_tokens": 2000, "stream": True}).encode()
    address = urlsplit(server.base_url)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(30)
        client.connect((address.hostname, address.port))
        client.sendall(head.encode() + body)
        eventually(lambda: leased(server, llama) == 1, 30)
        short = {"model": llama, **ENDLESS, "max_tokens": 2}
        assert eventually(lambda: post(server, **short).status_code == 200, 90)
        assert server.client.get("/health", timeout=20).status_code == 200
    eventually(lambda: leased(server, llama) == 0, 30)
