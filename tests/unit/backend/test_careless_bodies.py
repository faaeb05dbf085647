"""What the management routes say to bodies that are not what they should be. Nothing is loaded here."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from hf_transformers_backend.app import build_app
from hf_transformers_backend.settings import load_settings

LOAD, UNLOAD = "/v1/flexserv/models/load", "/v1/flexserv/models/unload"
DECLARED, SYNCED = "/v1/flexserv/declared", "/v1/flexserv/synced"
WITH_A_BODY = [LOAD, UNLOAD, DECLARED, SYNCED, "/reset", "/load_model", "/v1/embeddings"]
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return build_app(load_settings(device="cpu"))


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=JSON) as client:
        yield client


@pytest.mark.parametrize("path", WITH_A_BODY)
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{not json", "not valid JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"model_id": "\xff"}', "not valid UTF-8"),
        (b'{"model_id": "/x", "chat_template_kwargs": {"a": "\\ud800"}}', "not valid UTF-8"),
        (b'{"\\ud800": 1}', "not valid UTF-8"),
        (b'{"\\ud800": NaN}', "not valid UTF-8"),
        (b'{"idle_timeout_seconds": NaN}', "idle_timeout_seconds: must be a finite number"),
        (b'{"a": {"b": [1.5, -Infinity]}}', "a.b[1]: must be a finite number"),
        (b'{"metadata": {"a": 1e999}}', "metadata.a: must be a finite number"),
        (b"NaN", "the request body: must be a finite number"),
        (b'{"priority": ' + b"9" * 5000 + b"}", "too many digits"),
        (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"),
    ],
)
async def test_what_is_no_json_object_is_refused_in_the_same_words_everywhere(
    http: httpx.AsyncClient, path: str, content: bytes, words: str
) -> None:
    response = await http.post(path, content=content)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert words in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        (LOAD, {"model_id": "/x", "wait": -1}, "wait", "boolean or"),
        (LOAD, {"model_id": "/x", "wait": "5"}, "wait", "boolean or"),
        (LOAD, {"model_id": "/x", "idle_timeout_seconds": 1e300}, "idle_timeout_seconds", "31536000"),
        (LOAD, {"model_id": "/x", "priority": 10**30}, "priority", "1000000"),
        (LOAD, {"model_id": "/x", "served_name": "a\nb"}, "served_name", "served_name: must be a model's"),
        (LOAD, {"model_id": "/x", "pinned": True}, "pinned", "remove"),
        (LOAD, {}, "model_id", "is required"),
        (UNLOAD, {"model": "a typo of model_id"}, "model", "remove"),
        (DECLARED, {"hash": "h"}, "models", "is required"),
        (DECLARED, {"hash": "h", "models": [{"model_id": "/x", "pin": 1}]}, "models[0].pin", "boolean"),
        (DECLARED, {"hash": "h", "models": [{"model_id": "../x"}]}, "models[0].model_id", "relative"),
        (SYNCED, {"model_id": "/x"}, "model_id", "remove"),
        ("/reset", {"model_id": "/x"}, "model_id", "remove"),
    ],
)
async def test_the_field_is_named_once_with_the_remedy(
    http: httpx.AsyncClient, path: str, body: object, param: str, words: str
) -> None:
    response = await http.post(path, json=body)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param)
    assert words in error["message"] and error["message"].count(param) == 1


@pytest.mark.parametrize("path", [SYNCED, "/reset"])
@pytest.mark.parametrize("content", [b"", b"{}"])
async def test_a_mutation_without_a_parameter_takes_no_body_or_an_empty_one(
    http: httpx.AsyncClient, path: str, content: bytes
) -> None:
    response = await http.post(path, content=content)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_the_bodies_are_described_in_the_documentation(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    body = document["paths"][LOAD]["post"]["requestBody"]["content"]["application/json"]["schema"]
    schema = document["components"]["schemas"][body["$ref"].rpartition("/")[2]]
    assert "model_id" in schema["required"] and "idle_timeout_seconds" in schema["properties"]
