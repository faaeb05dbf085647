"""Flags without a test of their own elsewhere: real servers with many of them, and what each changes."""

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.model_copies import telltale_model
from tests.support.models import model_path
from tests.support.server import PROGRAM, RunningServer

HOST = "127.0.0.2"
USER, ADMIN = "user-token", "admin-token"
PAGE = "https://pages.example"
CHAT: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
OTHER = "org/some-other-model"
WEIGHTS_IN_FLOAT32 = 488_000


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return telltale_model("tiny-random-llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def minilm() -> str:
    return model_path("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def server(model: str, minilm: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    token_file = tmp_path_factory.mktemp("tokens") / "user"
    token_file.write_text(USER)
    flags = {
        "--host": HOST,
        "--device": "cpu",
        "--default-model": model,
        "--default-embedding-model": minilm,
        "--flexserv-token-file": str(token_file),
        "--default-seed": "7",
        "--default-max-tokens": "9",
        "--dtype": "bfloat16",
        "--log-level": "debug",
        "--startup-timeout": "1",
        "--reasoning": "on",
        "--chat-template-kwargs": '{"style": "flag"}',
    }
    env = {"FLEXSERV_ADMIN_TOKEN": ADMIN, "FLEXSERV_FORCE_DEFAULT_EMBEDDING_MODEL": "true"}
    switches = ["--force-default-model", "--enable-cors", "--ready-after-sync"]
    words = [word for pair in flags.items() for word in pair]
    with RunningServer(*words, *switches, env=env) as running:
        running.client.headers["Authorization"] = f"Bearer {USER}"
        eventually(lambda: health(running)["model_status"] == "loaded", 60)
        yield running


def health(server: RunningServer) -> dict[str, Any]:
    body: dict[str, Any] = server.client.get("/v1/flexserv/health").json()
    return body


def chat(server: RunningServer, **fields: Any) -> httpx.Response:
    return server.client.post("/v1/chat/completions", json={"messages": CHAT, **fields})


def text(server: RunningServer, **fields: Any) -> str:
    answer = chat(server, max_tokens=12, temperature=1.5, enable_thinking=False, **fields)
    content: str = answer.raise_for_status().json()["choices"][0]["message"]["content"]
    return content


def loaded(server: RunningServer) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = server.client.get("/v1/flexserv/models/loaded").json()["models"]
    return models


def test_host_is_the_only_address_that_is_listened_on(server: RunningServer) -> None:
    address = re.fullmatch(rf"http://{re.escape(HOST)}:(\d+)", server.base_url)
    assert address is not None, server.base_url
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(address[1])), 5)


def test_startup_timeout_ends_the_wait_for_the_operator(server: RunningServer) -> None:
    eventually(lambda: health(server)["status"] == "ok", 60)
    assert server.client.get("/v1/flexserv/models/loaded").json()["synced"] is False


def test_force_default_model_serves_every_request_by_it_and_says_so(
    server: RunningServer, model: str
) -> None:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("chat/completions", {"messages": CHAT, "max_tokens": 2}),
        ("completions", {"prompt": "hi", "max_tokens": 2}),
        ("responses", {"input": "hi", "max_output_tokens": 2}),
    ]
    for route, body in requests:
        for name in (OTHER, "../no/name/at/all", None):
            answer = server.client.post(f"/v1/{route}", json={"model": name, **body})
            assert (answer.status_code, answer.json().get("model")) == (200, model), answer.text
    with server.client.stream(
        "POST",
        "/v1/chat/completions",
        json={"model": OTHER, "messages": CHAT, "max_tokens": 2, "stream": True},
    ) as stream:
        chunks = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: {")]
    assert {chunk["model"] for chunk in chunks} == {model}
    assert '"status": "ready"' in _spaced(server.client.post("/load_model", json={"model": OTHER}).text)
    assert [one["model_id"] for one in loaded(server) if one["kind"] == "serve"] == [model]


def _spaced(events: str) -> str:
    return events.replace('":"', '": "')


def test_force_default_embedding_model_does_the_same_for_embeddings(
    server: RunningServer, minilm: str
) -> None:
    answers = [
        server.client.post("/v1/embeddings", json={"model": name, "input": "hi"}).raise_for_status().json()
        for name in (OTHER, None)
    ]
    assert [answer["model"] for answer in answers] == [minilm, minilm]
    assert answers[0]["data"] == answers[1]["data"]


def test_default_seed_is_the_seed_of_requests_that_set_none(server: RunningServer) -> None:
    unseeded = text(server)
    assert text(server) == unseeded == text(server, seed=7)
    assert len({unseeded, *(text(server, seed=seed) for seed in range(8, 14))}) > 3


def test_default_max_tokens_ends_an_answer_without_a_limit(server: RunningServer) -> None:
    answer = chat(server, temperature=0, logit_bias={"2": -100, "0": -100}).json()
    assert (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == ("length", 9)
    answer = chat(server, temperature=0, logit_bias={"2": -100, "0": -100}, max_tokens=11).json()
    assert answer["usage"]["completion_tokens"] == 11


def test_dtype_is_that_of_the_weights(server: RunningServer) -> None:
    (serving,) = [one for one in loaded(server) if one["kind"] == "serve"]
    assert serving["settings"]["dtype"] == "bfloat16"
    assert serving["bytes"] < 0.55 * WEIGHTS_IN_FLOAT32


def test_reasoning_and_template_variables_of_the_server_reach_the_template(server: RunningServer) -> None:
    def seen(**fields: Any) -> dict[str, Any]:
        refused = chat(server, chat_template_kwargs={"reveal": 1}, **fields).json()["error"]["message"]
        found = re.search(r"SEEN=(\{.*\})", refused)
        assert found is not None, refused
        values: dict[str, Any] = json.loads(found[1])
        return values

    assert seen() == {"tag": False, "style": "flag", "enable_thinking": True}
    assert seen(enable_thinking=False)["enable_thinking"] is False
    in_force = server.client.get("/v1/flexserv/info").json()["settings"]
    assert (in_force["reasoning"], in_force["chat_template_kwargs"]) == ("on", {"style": "flag"})


def test_enable_cors_lets_pages_call_the_api_and_manage_nothing(server: RunningServer) -> None:
    asks = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    # A browser sends no token with the question whether it may send one.
    preflight = httpx.options(f"{server.base_url}/v1/chat/completions", headers=asks, timeout=60)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-credentials" not in preflight.headers
    body = {"messages": CHAT, "max_tokens": 1}
    for fields, status in ((body, 200), ({}, 400)):
        answer = server.client.post("/v1/chat/completions", json=fields, headers={"Origin": PAGE})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, "*")
        assert "retry-after" in answer.headers["access-control-expose-headers"].lower()
    admin = {"Authorization": f"Bearer {ADMIN}", "Origin": PAGE}
    unload = server.client.post("/v1/flexserv/models/unload", json={}, headers=admin)
    assert (unload.status_code, unload.json()["error"]["code"]) == (403, "foreign_origin")


def test_each_token_opens_what_is_its_own(server: RunningServer) -> None:
    def status(method: str, path: str, token: str | None) -> int:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        return httpx.request(method, server.base_url + path, headers=headers, timeout=60).status_code

    assert [status("GET", "/v1/models", token) for token in (None, "no", USER, ADMIN)] == [401, 401, 200, 200]
    synced = [status("POST", "/v1/flexserv/models/load", token) for token in (None, USER, ADMIN)]
    assert synced == [401, 401, 400]  # the last one is let in, and has sent no body


def test_log_level_debug_writes_what_info_does_not(server: RunningServer) -> None:
    server.client.get("/health")
    assert eventually(lambda: " DEBUG " in server.log(), 20)


def test_an_impatient_server_waits_for_nothing_keeps_nothing_and_names_what_it_lacks(minilm: str) -> None:
    llama = model_path("tiny-random-llama")
    flags = {
        "--load-wait": "0",
        "--model-timeout": "1",
        "--on-demand": "declared",
        "--attn-implementation": "flash_attention_2",
        "--quantization": "bnb-4bit",
        "--device": "cpu",
    }
    words = [word for pair in flags.items() for word in pair]
    with RunningServer(*words) as server:
        # --on-demand
        texts = {"model": minilm, "input": "hi"}
        absent = server.client.post("/v1/embeddings", json=texts)
        assert (absent.status_code, absent.json()["error"]["code"]) == (503, "not_synced")
        # --quantization and --attn-implementation: what needs packages that a test machine has not.
        for kind, name, param in (
            ("serve", llama, "quantization"),
            ("embedding", minilm, "attn_implementation"),
        ):
            body = {"model_id": name, "kind": kind, "wait": 60}
            refused = server.client.post("/v1/flexserv/models/load", json=body)
            assert (refused.status_code, refused.json()["error"]["param"]) == (422, param), refused.text
        entry = {"model_id": minilm, "kind": "embedding", "attn_implementation": "sdpa"}
        declared = {"models": [entry], "hash": "h"}
        server.client.post("/v1/flexserv/declared", json=declared).raise_for_status()
        # --load-wait
        early = server.client.post("/v1/embeddings", json=texts)
        assert (early.status_code, early.json()["error"]["code"]) == (503, "model_loading")
        assert float(early.headers["retry-after"]) >= 1

        # --model-timeout
        def evictions() -> dict[str, str]:
            inventory = server.client.get("/v1/flexserv/models/loaded").json()
            return {one["model_id"]: one["reason"] for one in inventory["last_evictions"]}

        assert eventually(lambda: evictions().get(minilm), 60) == "idle"
        assert " INFO " in server.log() and " DEBUG " not in server.log()  # the default --log-level


def test_the_pool_of_a_batch_is_as_large_as_the_flags_say() -> None:
    """16 tokens a block and 8 blocks, on a CPU too; a step of 32 tokens takes a longer prompt in several."""
    llama = model_path("tiny-random-llama")
    flags = ["--device", "cpu", "--continuous-batching", "--no-cb-use-cuda-graph", "--cb-block-size", "16"]
    env = {"FLEXSERV_CB_NUM_BLOCKS": "8", "FLEXSERV_CB_MAX_BATCH_TOKENS": "32"}
    with RunningServer(*flags, env=env) as server:
        long, longer = ({"model": llama, "prompt": "x" * size, "max_tokens": 2} for size in (90, 400))
        answer = server.client.post("/v1/completions", json=long)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["prompt_tokens"] > 32
        refused = server.client.post("/v1/completions", json=longer)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert 32 < refused.json()["error"]["context_tokens"] <= 16 * 8
        assert "a pool of 128 tokens" in server.log()
        seeded = server.client.post("/v1/completions", json={**long, "seed": 1, "temperature": 1})
        assert (seeded.status_code, seeded.json()["error"]["param"]) == (400, "seed")


def test_the_monitor_looks_as_often_as_it_is_told_and_reports_its_thresholds() -> None:
    """The machine uses more than 0.1 % of its RAM; a server without models cannot change that."""
    flags = ["--device", "cpu", "--oom-monitor", "--oom-check-interval", "0.2"]
    env = {"FLEXSERV_OOM_RAM_THRESHOLD": "0.1", "FLEXSERV_OOM_VRAM_THRESHOLD": "55"}
    with RunningServer(*flags, env=env) as server:

        def pressure() -> Any:
            return server.client.get("/v1/flexserv/models/loaded").json()["pressure"]

        # The default is to look every 30 seconds.
        assert eventually(pressure, 20)["resource"] == "ram"
        metrics = server.client.get("/metrics").text
        assert 'flexserv_oom_threshold_ratio{resource="ram"} 0.001' in metrics
        assert 'flexserv_oom_threshold_ratio{resource="vram"} 0.55' in metrics


def test_server_wide_template_variables_cannot_take_over_the_machinery() -> None:
    command = [sys.executable, str(PROGRAM), "--port", "0", "--chat-template-kwargs", '{"tokenize": true}']
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("flexserv-backend: error: --chat-template-kwargs: tokenize cannot be set")
    assert len(done.stderr.splitlines()) == 1
