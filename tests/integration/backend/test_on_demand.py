"""Which models a mere request may load, what they are called, how they are listed; and how it all ends."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.models import model_path
from tests.support.server import RunningServer

DEFAULT, DECLARED, OTHER = "tiny-random-llama", "tiny-random-gpt2", "tiny-random-vision"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    flags = ["--device", "cpu", "--on-demand", "declared", "--default-model", model_path(DEFAULT)]
    with RunningServer(*flags) as server:
        server.wait_until_ready()
        yield server


def declare(server: RunningServer, *models: dict[str, Any]) -> None:
    body = {"models": list(models), "hash": "of this test"}
    server.client.post("/v1/flexserv/declared", json=body).raise_for_status()


def ask(server: RunningServer, model: str | None) -> httpx.Response:
    body = {"prompt": "hi", "max_tokens": 2} | ({} if model is None else {"model": model})
    return server.client.post("/v1/completions", json=body)


def outcome(response: httpx.Response) -> tuple[int, str | None]:
    return response.status_code, response.json()["error"]["code"] if response.is_error else None


def load_model(server: RunningServer, model: str) -> httpx.Response:
    return server.client.post("/load_model", json={"model": model})


def test_before_the_first_list_only_default_models_are_served(server: RunningServer) -> None:
    """The first test of the file: a list cannot be taken back."""
    server.client.post("/reset").raise_for_status()
    assert outcome(ask(server, None)) == (200, None), "default models count as declared"
    refused = ask(server, model_path(DECLARED))
    assert outcome(refused) == (503, "not_synced")
    assert int(refused.headers["retry-after"]) > 0
    assert outcome(load_model(server, model_path(DECLARED))) == (503, "not_synced")


def test_only_declared_models_are_loaded_by_a_request_and_any_by_the_load_route(
    server: RunningServer,
) -> None:
    declare(server, {"model_id": model_path(DECLARED)})
    refused = ask(server, model_path(OTHER))
    assert outcome(refused) == (403, "not_declared")
    message = refused.json()["error"]["message"]
    assert model_path(OTHER) in message and "create a FlexServModel" in message, "it says what to do"
    assert outcome(load_model(server, model_path(OTHER))) == (403, "not_declared")
    assert outcome(ask(server, model_path(DECLARED))) == (200, None)
    body = {"model_id": model_path(OTHER), "wait": 60}
    assert server.client.post("/v1/flexserv/models/load", json=body).status_code == 200
    assert outcome(ask(server, model_path(OTHER))) == (200, None), "what is resident is served"


def test_a_declared_model_that_is_blocked_is_not_loaded_before_its_time(server: RunningServer) -> None:
    server.client.post("/reset").raise_for_status()
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    declare(server, {"model_id": model_path(DECLARED), "blocked_until": later})
    assert outcome(ask(server, model_path(DECLARED))) == (503, "model_quarantined")
    earlier = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    declare(server, {"model_id": model_path(DECLARED), "blocked_until": earlier})
    assert outcome(ask(server, model_path(DECLARED))) == (200, None)


def test_a_model_answers_to_its_id_its_revision_and_its_served_name(server: RunningServer) -> None:
    path = model_path(DECLARED)
    declare(server, {"model_id": path, "served_name": "org/ours"})
    for name in (path, "org/ours"):
        reply = ask(server, name)
        assert (reply.status_code, reply.json()["model"]) == (200, name)
        assert server.client.get("/v1/flexserv/health", params={"model": name}).status_code == 200
    assert server.client.get("/v1/flexserv/health", params={"model": "org/other"}).status_code == 503
    assert outcome(ask(server, "org/ours@main")) == (403, "not_declared"), "another revision is another model"
    (gone,) = server.client.post("/v1/flexserv/models/unload", json={"model_id": "org/ours"}).json()[
        "unloaded"
    ]
    assert (gone["model_id"], gone["was_loaded"]) == (path, True)


def test_models_are_listed_with_their_status_and_can_be_asked_for_one_by_one(server: RunningServer) -> None:
    server.client.post("/reset").raise_for_status()
    declare(server, {"model_id": model_path(DECLARED), "served_name": "org/ours"})
    body = {"model_id": model_path(OTHER), "wait": 60, "served_name": "resident"}
    server.client.post("/v1/flexserv/models/load", json=body).raise_for_status()
    listed = server.client.get("/v1/models").raise_for_status().json()
    assert listed["object"] == "list"
    status = {model["id"]: model["status"] for model in listed["data"]}
    assert status == {"resident": "loaded", model_path(DEFAULT): "unloaded", "org/ours": "unloaded"}
    for model in listed["data"]:
        assert server.client.get(f"/v1/models/{model['id']}").json() == model
    assert outcome(server.client.get("/v1/models/org/absent")) == (404, "model_not_found")


MUTATIONS = [
    ("/v1/flexserv/models/load", {"model_id": "org/absent"}),
    ("/v1/flexserv/models/unload", {}),
    ("/v1/flexserv/declared", {"models": [], "hash": "never"}),
    ("/v1/flexserv/synced", {}),
    ("/reset", {}),
]
CARELESS = [
    ({"X-FlexServ-Instance": "of another process"}, {}, (409, "wrong_instance")),
    ({"Origin": "http://evil.example"}, {}, (403, "foreign_origin")),
    ({"Origin": "null"}, {}, (403, "foreign_origin")),
    ({"Content-Type": "text/plain"}, {}, (415, "unsupported_media_type")),
    ({}, {"model": "a typo of model_id"}, (400, None)),
    ({}, {"oom_triggered": "yes"}, (400, None)),
]


@pytest.mark.parametrize(("path", "body"), MUTATIONS)
@pytest.mark.parametrize(("headers", "more", "expected"), CARELESS)
def test_no_mutation_takes_what_is_careless_or_meant_for_others(
    server: RunningServer, path: str, body: dict[str, Any], headers: dict[str, str], more: Any, expected: Any
) -> None:
    before = server.client.get("/v1/flexserv/models/loaded").json()
    if not before["models"]:
        assert ask(server, None).is_success
        before = server.client.get("/v1/flexserv/models/loaded").json()
    content = json.dumps(body | more)
    reply = server.client.post(path, content=content, headers={"Content-Type": "application/json"} | headers)
    status, code = outcome(reply)
    assert status == expected[0] and code in (expected[1], "invalid_request")
    assert server.client.get("/v1/flexserv/models/loaded").json() == before, "nothing happened"


def test_a_server_with_nothing_to_do_stops_at_once(server: RunningServer) -> None:
    """The last test of the file. It takes 0.4 s; the bound is for busy machines."""
    server.client.post("/reset").raise_for_status()
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 10


def test_a_stop_while_a_model_loads_is_a_clean_one() -> None:
    """A GGUF file takes seconds to unpack."""
    path = f"{model_path('SmolLM2-135M-Instruct-GGUF')}:SmolLM2-135M-Instruct.Q4_1.gguf"
    with RunningServer("--shutdown-timeout", "60") as server:
        server.client.post("/v1/flexserv/models/load", json={"model_id": path}).raise_for_status()
        inventory = "/v1/flexserv/models/loaded"
        eventually(
            lambda: [job["stage"] for job in server.client.get(inventory).json()["loading"]] == ["weights"],
            60,
        )
        assert server.stop() == 0
        assert "Traceback" not in server.log()
