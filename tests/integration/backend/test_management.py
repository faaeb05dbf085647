"""Load, unload, inventory and what guards them, on a real server with real models."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.backend.conftest import BODY_LIMIT
from tests.support.eventually import eventually
from tests.support.models import model_path
from tests.support.server import RunningServer


def load(server: RunningServer, name: str, **body: Any) -> httpx.Response:
    return server.client.post(
        "/v1/flexserv/models/load", json={"model_id": model_path(name), "wait": 60, **body}
    )


def inventory(server: RunningServer) -> dict[str, Any]:
    return server.client.get("/v1/flexserv/models/loaded").raise_for_status().json()  # type: ignore[no-any-return]


def unload(server: RunningServer, body: dict[str, Any]) -> dict[str, Any]:
    return server.client.post("/v1/flexserv/models/unload", json=body).raise_for_status().json()  # type: ignore[no-any-return]


def error_of(response: httpx.Response) -> tuple[int, str | None, str | None]:
    """Status, code and param; every error has the OpenAI shape."""
    error = response.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return response.status_code, error["code"], error["param"]


def test_a_model_is_loaded_shown_used_and_unloaded(server: RunningServer) -> None:
    path = model_path("tiny-random-llama")
    first = server.client.post(
        "/v1/flexserv/models/load", json={"model_id": path, "served_name": "tiny", "pin": True}
    )
    assert first.status_code == 202
    assert first.json()["load_id"] and first.json()["status"] == "loading"
    second = load(server, "tiny-random-llama")
    assert second.status_code == 200 and second.json()["status"] in ("loaded", "already_loaded")
    by_served_name = server.client.post("/v1/flexserv/models/load", json={"model_id": "tiny", "pin": True})
    assert (by_served_name.json()["status"], by_served_name.json()["model_id"]) == ("already_loaded", path)
    (model,) = inventory(server)["models"]
    assert (model["model_id"], model["kind"], model["served_name"], model["pinned"]) == (
        path,
        "serve",
        "tiny",
        True,
    )
    assert model["bytes"] > 100_000 and model["settings"]["dtype"] == "auto"
    assert datetime.fromisoformat(model["loaded_at"]).tzinfo is not None
    assert (model["expires_at"], model["active_requests"]) == (None, 0)
    health = server.client.get("/v1/flexserv/health", params={"model": "tiny"})
    assert health.status_code == 200
    assert (health.json()["model"], health.json()["model_status"]) == (path, "loaded")
    reply = unload(server, {"model_id": "tiny"})
    assert reply == {
        "unloaded": [
            {
                "model_id": path,
                "kind": "serve",
                "revision": None,
                "was_loaded": True,
                "was_loading": False,
                "had_active_requests": False,
            }
        ],
        "warnings": [],
        "active_requests_at_eviction": 0,
        "oom_triggered": False,
    }
    assert inventory(server)["models"] == []
    health = server.client.get("/v1/flexserv/health")
    assert (health.json()["model"], health.json()["model_status"]) == (None, "not_loaded")
    assert error_of(server.client.get("/v1/flexserv/health", params={"model": "tiny"}))[:2] == (
        503,
        "not_loaded",
    )


def test_a_request_by_served_name_echoes_that_name(server: RunningServer) -> None:
    path = model_path("tiny-random-llama")
    entry = {"model_id": path, "served_name": "org/tiny", "owner": "ns/tiny#1"}
    server.client.post("/v1/flexserv/declared", json={"models": [entry], "hash": "h1"}).raise_for_status()
    chat = {"model": "org/tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    reply = server.client.post("/v1/chat/completions", json=chat)
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == "org/tiny"
    now = inventory(server)
    assert (now["declared_hash"], now["models"][0]["owner"]) == ("h1", "ns/tiny#1")
    assert (
        'flexserv_model_loaded{kind="serve",model="org/tiny",revision=""} 1.0'
        in server.client.get("/metrics").text
    )


def test_an_encoder_and_a_generator_live_side_by_side(server: RunningServer) -> None:
    assert load(server, "tiny-random-llama").status_code == 200
    assert load(server, "all-MiniLM-L6-v2", kind="embedding").status_code == 200
    kinds = {model["kind"] for model in inventory(server)["models"]}
    assert kinds == {"serve", "embedding"}
    embedding = server.client.get("/v1/flexserv/health").json()["embedding_model"]
    assert embedding == {"model_id": model_path("all-MiniLM-L6-v2"), "status": "loaded"}
    assert len(unload(server, {})["unloaded"]) == 2


def test_other_load_time_settings_replace_a_model(server: RunningServer) -> None:
    assert load(server, "tiny-random-llama", owner="a").status_code == 200
    assert load(server, "tiny-random-llama", dtype="bfloat16").json()["status"] == "loaded"
    (model,) = inventory(server)["models"]
    assert (model["settings"]["dtype"], model["owner"]) == ("bfloat16", "a")
    evictions = {eviction["model_id"]: eviction["reason"] for eviction in inventory(server)["last_evictions"]}
    assert evictions[model["model_id"]] == "replaced"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model_id": "/nowhere/at/all"}, (404, "model_not_found", "model")),
        ({"model_id": "org/not-in-the-cache"}, (404, "model_not_found", "model")),
        ({"model_id": "no hub id"}, (400, None, "model")),
        ({"model_id": "../x"}, (400, None, "model_id")),
        ({"model_id": "https://hub/x"}, (400, None, "model_id")),
        ({"model_id": "a", "pinned": True}, (400, None, "pinned")),
        ({"model_id": "a", "pin": "yes"}, (400, None, "pin")),
        ({"model_id": "a", "dtype": "int3"}, (400, None, "dtype")),
        ({"model_id": "a@b", "revision": "c"}, (400, None, "revision")),
        ({"model_id": "a", "chat_template_kwargs": {"tokenize": False}}, (400, None, "chat_template_kwargs")),
        ({}, (400, None, "model_id")),
    ],
)
def test_a_load_that_cannot_work_says_why(server: RunningServer, body: dict[str, Any], expected: Any) -> None:
    response = server.client.post("/v1/flexserv/models/load", json={"wait": 60, **body})
    assert error_of(response) == expected
    if "model_id" in body and expected[1] is not None:
        assert body["model_id"] in response.json()["error"]["message"]


def test_a_failed_load_is_in_the_inventory_until_the_next_one(server: RunningServer) -> None:
    body = {"model_id": "/nowhere/at/all", "wait": 60}
    assert server.client.post("/v1/flexserv/models/load", json=body).status_code == 404
    failed = [failure for failure in inventory(server)["failed"] if failure["model_id"] == "/nowhere/at/all"]
    assert [failure["code"] for failure in failed] == ["model_not_found"]


def test_an_encoder_cannot_be_served_as_a_generator(server: RunningServer) -> None:
    response = load(server, "all-MiniLM-L6-v2")
    assert error_of(response) == (422, "unsupported_model", "model")
    assert "kind 'embedding'" in response.json()["error"]["message"]


GGUF = ":SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.parametrize(
    ("name", "body", "param"),
    [
        ("tiny-random-llama", {"quantization": "bnb-4bit"}, "quantization"),
        ("tiny-random-llama", {"attn_implementation": "flash_attention_3"}, "attn_implementation"),
        ("tiny-random-gpt2", {"attn_implementation": "flex_attention"}, "attn_implementation"),
        ("all-MiniLM-L6-v2", {"attn_implementation": "flash_attention_3", "kind": "embedding"}, "attn_im"),
        ("all-MiniLM-L6-v2", {"quantization": "bnb-4bit", "kind": "embedding"}, "quantization"),
        ("SmolLM2-135M-Instruct-GGUF", {"file": GGUF, "quantization": "bnb-4bit"}, "quantization"),
        ("SmolLM2-135M-Instruct-GGUF", {"file": GGUF, "kind": "embedding"}, "kind"),
        ("tiny-random-whisper", {"kind": "embedding"}, "kind"),
    ],
)
def test_a_setting_that_a_model_cannot_have_is_named(
    server: RunningServer, name: str, body: dict[str, Any], param: str
) -> None:
    path = model_path(name) + body.pop("file", "")
    response = server.client.post("/v1/flexserv/models/load", json={"model_id": path, "wait": 60, **body})
    status, code, named = error_of(response)
    assert (status, code) == (422, "unsupported_model")
    assert named is not None and named.startswith(param)
    assert inventory(server)["models"] == []


@pytest.mark.parametrize("content", [b"", b"no gguf", b"GGUF" + b"\0" * 100])
def test_a_damaged_gguf_file_is_said_to_be_damaged(
    server: RunningServer, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "model.gguf").write_bytes(content)
    body = {"model_id": f"{tmp_path}:model.gguf", "wait": 60}
    response = server.client.post("/v1/flexserv/models/load", json=body)
    assert error_of(response)[:2] == (500, "load_failed")
    assert "damaged" in response.json()["error"]["message"]


def test_the_longest_idle_timeout_can_be_shown(server: RunningServer) -> None:
    assert load(server, "tiny-random-llama", idle_timeout_seconds=31_536_000).status_code == 200
    (model,) = inventory(server)["models"]
    assert datetime.fromisoformat(model["expires_at"]) > datetime.fromisoformat(model["loaded_at"])


def test_a_chat_for_a_missing_model_is_a_404_with_the_name_that_was_sent(server: RunningServer) -> None:
    chat = {"model": "org/absent", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    response = server.client.post("/v1/chat/completions", json=chat)
    assert error_of(response)[:2] == (404, "model_not_found")
    assert "org/absent" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "content", "expected"),
    [
        ({"Content-Type": "text/plain"}, b"{}", (415, "unsupported_media_type")),
        ({}, b"{}", (415, "unsupported_media_type")),
        (
            {"Content-Type": "application/json", "Origin": "http://evil.example"},
            b"{}",
            (403, "foreign_origin"),
        ),
        (
            {"Content-Type": "application/json", "X-FlexServ-Instance": "other"},
            b"{}",
            (409, "wrong_instance"),
        ),
        ({"Content-Type": "application/json"}, b"{not json", (400, None)),
        ({"Content-Type": "application/json"}, b"[]", (400, None)),
        ({"Content-Type": "application/json"}, b'{"model": "a typo of model_id"}', (400, None)),
        ({"Content-Type": "application/json"}, b'{"model_id": 5}', (400, None)),
        ({"Content-Type": "application/json"}, b"", (400, None)),
    ],
)
def test_a_careless_mutation_changes_nothing(
    server: RunningServer, headers: dict[str, str], content: bytes, expected: Any
) -> None:
    assert load(server, "tiny-random-llama").status_code == 200
    response = server.client.post("/v1/flexserv/models/unload", headers=headers, content=content)
    assert error_of(response)[:2] == expected
    assert len(inventory(server)["models"]) == 1


def test_the_right_instance_is_let_in(server: RunningServer) -> None:
    headers = {"X-FlexServ-Instance": inventory(server)["instance_id"]}
    response = server.client.post("/v1/flexserv/models/unload", headers=headers, json={"oom_triggered": True})
    assert response.status_code == 200 and response.json()["oom_triggered"] is True
    assert server.client.post("/v1/flexserv/synced", headers=headers).status_code == 200
    assert inventory(server)["synced"] is True


def test_unloading_what_is_not_here_says_so(server: RunningServer) -> None:
    (entry,) = unload(server, {"model_id": "org/absent"})["unloaded"]
    assert (entry["model_id"], entry["was_loaded"], entry["was_loading"]) == ("org/absent", False, False)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_above_the_limit_is_refused(server: RunningServer, chunked: bool) -> None:
    text = b'{"model_id": "' + b"a" * BODY_LIMIT + b'"}'
    content = iter([text[:1000], text[1000:]]) if chunked else text
    response = httpx.post(
        f"{server.base_url}/v1/flexserv/models/load",
        content=content,
        headers={"Content-Type": "application/json"},
        timeout=60,
    )
    assert error_of(response)[:2] == (413, "request_too_large")


def test_errors_of_the_router_have_the_same_shape(server: RunningServer) -> None:
    assert error_of(server.client.get("/v1/nothing/here"))[:2] == (404, "not_found")
    assert error_of(server.client.get("/v1/flexserv/models/load"))[0] == 405
    assert error_of(server.client.post("/v1/systemone", json={}))[0] == 404


def test_the_documentation_describes_the_routes(server: RunningServer) -> None:
    described = yaml.safe_load(server.client.get("/openapi.yaml").raise_for_status().text)
    assert described == server.client.get("/openapi.json").json()
    assert {"/v1/chat/completions", "/v1/flexserv/models/load", "/health", "/load_model"} <= set(
        described["paths"]
    )
    assert "FlexServ" in server.client.get("/docs").raise_for_status().text


def test_the_facts_of_the_machine_have_the_specified_fields(server: RunningServer) -> None:
    resources = server.client.get("/v1/flexserv/resources").raise_for_status().json()
    assert set(resources["memory"]) == {"used_percentage", "used_gb", "free_gb", "total_gb"}
    assert resources["cpu"][0].keys() == {"cpu_id", "used_percentage"}
    info = server.client.get("/v1/flexserv/info").raise_for_status().json()
    assert info["settings"]["device"] == "cpu" and info["libraries"]["transformers"].startswith("5.24.")


def test_load_model_streams_progress_as_transformers_chat_reads_it(server: RunningServer) -> None:
    def events(model: str) -> list[dict[str, Any]]:
        text = server.client.post("/load_model", json={"model": model}).raise_for_status().text
        return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]

    path = model_path("tiny-random-llama")
    first = events(path)
    assert first[-1] == {"status": "ready", "model": path, "cached": False}
    assert all(event["status"] == "loading" for event in first[:-1])
    assert events(path) == [{"status": "ready", "model": path, "cached": True}]
    assert events("org/absent")[-1]["code"] == "model_not_found"


def test_memory_comes_back_after_an_unload(server: RunningServer) -> None:
    load(server, "tiny-random-llama")
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    tiny = {**chat, "model": model_path("tiny-random-llama")}
    server.client.post("/v1/chat/completions", json=tiny).raise_for_status()
    unload(server, {})
    before = server.resident_bytes()
    for _ in range(2):
        assert load(server, "SmolLM2-135M-Instruct").status_code == 200
        (model,) = inventory(server)["models"]
        assert model["bytes"] > 500_000_000
        big = {**chat, "model": model_path("SmolLM2-135M-Instruct")}
        server.client.post("/v1/chat/completions", json=big).raise_for_status()
        assert server.resident_bytes() - before > 0.8 * model["bytes"]
        unload(server, {})
        eventually(lambda: server.resident_bytes() - before < 100_000_000, 20)


def test_liveness_answers_while_a_model_loads(server: RunningServer) -> None:
    body = {"model_id": model_path("SmolLM2-135M-Instruct"), "dtype": "float32"}

    statuses: list[int] = []

    def answered_meanwhile() -> int:
        """How often, in one load; a short one may be over before the first question."""
        unload(server, {})
        server.client.post("/v1/flexserv/models/load", json=body).raise_for_status()
        answered = 0
        while inventory(server)["loading"]:
            statuses.append(liveness(server))
            answered += 1
        assert len(inventory(server)["models"]) == 1
        return answered

    assert eventually(answered_meanwhile, 60)
    assert set(statuses) == {200}


def liveness(server: RunningServer) -> int:
    """The status of /health; 0 where it takes too long."""
    try:
        return server.client.get("/health", timeout=5).status_code
    except httpx.TimeoutException:
        return 0
