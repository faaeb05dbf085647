"""Each way in which a request can be wrong, on each route: an OpenAI error before anything is streamed, while
the server goes on answering. And faults of the server itself.
"""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.backend.conftest import BODY_LIMIT
from tests.support.eventually import eventually
from tests.support.models import model_path
from tests.support.own_code import write_faulty_model
from tests.support.server import RunningServer

CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
VECTORS, SOUND = "/v1/embeddings", "/v1/audio/transcriptions"
STREAMING = (CHAT, TEXT, RESPONSES)
MODELS = {
    CHAT: "tiny-random-llama",
    TEXT: "tiny-random-gpt2",
    RESPONSES: "tiny-random-llama",
    VECTORS: "all-MiniLM-L6-v2",
    SOUND: "tiny-random-whisper",
}
USER = {"role": "user", "content": "hi"}
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [USER], "max_tokens": 1},
    TEXT: {"prompt": "hi", "max_tokens": 1},
    RESPONSES: {"input": "hi", "max_output_tokens": 1},
    VECTORS: {"input": "hi"},
}
CONTENT = {CHAT: "messages", TEXT: "prompt", RESPONSES: "input", VECTORS: "input"}
ANSWERED = [USER, {"role": "assistant", "content": "hello"}]
ABSENT = object()
# A route, what is changed in a good body, and the parameter that the error must name.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    *((route, {content: ABSENT}, content) for route, content in CONTENT.items()),
    *((route, {content: None}, content) for route, content in CONTENT.items()),
    *((route, {content: 5}, content) for route, content in CONTENT.items()),
    *((route, {content: {"a": 1}}, content) for route, content in CONTENT.items()),
    *((route, {content: []}, content) for route, content in CONTENT.items()),
    *((route, {content: ""}, content) for route, content in CONTENT.items()),
    *((route, {"model": ABSENT}, "model") for route in CONTENT),
    *((route, {"model": 5}, "model") for route in CONTENT),
    *((route, {"model": ""}, "model") for route in CONTENT),
    *((route, {"model": "x" * 600}, "model") for route in CONTENT),
    *((route, {"model": "/etc/../etc"}, "model") for route in CONTENT),
    *((route, {"stream": "yes"}, "stream") for route in STREAMING),
    *(
        (route, {"temperature": value}, "temperature")
        for route in STREAMING
        for value in (-1, 2.1, "1", True)
    ),
    *((route, {"top_p": value}, "top_p") for route in STREAMING for value in (-0.1, 1.1, [1])),
    *((route, {"seed": 2**63}, "seed") for route in STREAMING),
    *((route, {"max_tokens": value}, "max_tokens") for route in (CHAT, TEXT) for value in (0, -5, 1.5, "9")),
    (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
    (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens"),
    *((route, {"n": 2}, "n") for route in (CHAT, TEXT)),
    *((route, {"presence_penalty": 3}, "presence_penalty") for route in (CHAT, TEXT)),
    *((route, {"frequency_penalty": -3}, "frequency_penalty") for route in (CHAT, TEXT)),
    *((route, {"logit_bias": {"x": 1}}, "logit_bias") for route in (CHAT, TEXT)),
    *((route, {"logit_bias": {"99999999": 1}}, "logit_bias") for route in (CHAT, TEXT)),
    *((route, {"stop": [""]}, "stop[0]") for route in (CHAT, TEXT)),
    *((route, {"generation_config": "{"}, "generation_config") for route in STREAMING),
    *((route, {"generation_config": '{"top_k": -1}'}, "generation_config.top_k") for route in STREAMING),
    *(
        (route, {"generation_config": json.dumps({key: value, "num_beams": 2})}, f"generation_config.{key}")
        for route in STREAMING
        for key, value in (
            ("eos_token_id", 10**30),
            ("forced_eos_token_id", 10**9),
            ("bad_words_ids", [[1, 2, 10**9]]),
            ("sequence_bias", [[[10**9], 5.0]]),
        )
    ),
    (
        TEXT,
        {"generation_config": '{"eos_token_id": -1, "exponential_decay_length_penalty": [0, 1.5]}'},
        "generation_config",
    ),
    (TEXT, {"generation_config": '{"update": 1}'}, "generation_config.update"),
    (CHAT, {"messages": ANSWERED}, "messages[1].role"),
    (RESPONSES, {"input": ANSWERED}, "input[1].role"),
    (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0]"),
    (CHAT, {"logprobs": True}, "logprobs"),
    (CHAT, {"top_logprobs": 3}, "top_logprobs"),
    (CHAT, {"response_format": {"type": "json_object"}}, "response_format.type"),
    (CHAT, {"tool_choice": "required"}, "tool_choice"),
    (CHAT, {"tools": [{"type": "retrieval"}]}, "tools[0].type"),
    (CHAT, {"chat_template_kwargs": {"tokenize": False}}, "chat_template_kwargs.tokenize"),
    (CHAT, {"chat_template_kwargs": 5}, "chat_template_kwargs"),
    (CHAT, {"enable_thinking": "perhaps"}, "enable_thinking"),
    (RESPONSES, {"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
    (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
    (RESPONSES, {"background": True}, "background"),
    (RESPONSES, {"text": {"format": {"type": "json_object"}}}, "text.format.type"),
    (RESPONSES, {"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    (TEXT, {"logprobs": 2}, "logprobs"),
    (TEXT, {"best_of": 3}, "best_of"),
    (TEXT, {"suffix": "x"}, "suffix"),
    (TEXT, {"prompt": [10**9]}, "prompt"),
    (VECTORS, {"dimensions": 0}, "dimensions"),
    (VECTORS, {"dimensions": 10**6}, "dimensions"),
    (VECTORS, {"encoding_format": "hex"}, "encoding_format"),
    (VECTORS, {"input": ["a", ""]}, "input[1]"),
    (VECTORS, {"input": [[10**9]]}, "input"),
]
RAW: list[tuple[str, bytes, str]] = [
    ("cut off", b'{"model": ', "JSON"),
    ("nothing", b"", "empty"),
    ("a list", b"[]", "object"),
    ("invalid UTF-8", b'{"model": "\xff\xfe"}', "UTF-8"),
    ("half a surrogate pair", b'{"model": "\\ud800"}', "UTF-8"),
    ("deep nesting", b'{"model":' * 50_000, "nested"),
    ("NaN", b'{"temperature": NaN}', "finite"),
    ("infinity", b'{"dimensions": -Infinity}', "finite"),
    ("a huge number", b'{"seed": ' + b"9" * 5000 + b"}", "digits"),
]


@pytest.fixture(scope="module")
def server(shared_server: RunningServer) -> Iterator[RunningServer]:
    """The shared server, whose health is asked for all the time: it must always answer."""
    over, failures = threading.Event(), list[str]()

    def ask() -> None:
        with httpx.Client(base_url=shared_server.base_url, timeout=20) as client:
            while not over.wait(0.05):
                try:
                    if not client.get("/health").is_success:
                        failures.append("not 200")
                except httpx.HTTPError as error:
                    failures.append(repr(error))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield shared_server
    finally:
        over.set()
        asking.join(30)
    assert failures == []


def check_error(got: httpx.Response, status: int, param: str | None = None) -> dict[str, Any]:
    """OpenAI's form, and nothing in it that the caller need not know."""
    assert (got.status_code, got.headers["content-type"]) == (status, "application/json"), got.text
    error: dict[str, Any] = got.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"} and error["message"]
    if param is not None:
        assert error["param"] == param or str(error["param"]).startswith((f"{param}.", f"{param}["))
    assert not re.search(r"site-packages|hf_transformers_backend|Traceback|\.py\b|0x[0-9a-f]{6}", got.text)
    return error


def case_id(route: str, changes: dict[str, Any], param: str) -> str:
    value = next(iter(changes.values()))
    return f"{route.split('/')[-1]}-{param}-{'absent' if value is ABSENT else repr(value)[:30]}"


@pytest.mark.parametrize(
    ("route", "changes", "param"),
    WRONG,
    ids=[case_id(*case) for case in WRONG],
)
def test_a_wrong_field_is_a_400_that_names_it(
    server: RunningServer, route: str, changes: dict[str, Any], param: str
) -> None:
    body = {"model": model_path(MODELS[route]), **BODIES[route], **changes}
    body = {name: value for name, value in body.items() if value is not ABSENT}
    check_error(server.client.post(route, json=body), 400, param)
    if route in STREAMING and "stream" not in changes:
        check_error(server.client.post(route, json={**body, "stream": True}), 400, param)


@pytest.mark.parametrize(
    ("route", "changes", "param"),
    [
        (TEXT, {"prompt": [-1] * 200_000}, "prompt[0]"),
        (TEXT, {"logit_bias": {str(token): 101 for token in range(40_000)}}, "logit_bias.0"),
        (CHAT, {"messages": [{}] * 200_000}, "messages[0].role"),
        (CHAT, {"tools": [{}] * 200_000}, "tools[0].type"),
        (RESPONSES, {"input": [{}] * 200_000}, "input[0]"),
        (VECTORS, {"input": [-1] * 200_000}, "input[0]"),
        ("/v1/flexserv/declared", {"hash": "h", "models": [{}] * 200_000}, "models[0].model_id"),
        # What is right, and more than the model reads.
        (TEXT, {"prompt": [1] * 300_000}, "prompt"),
        (TEXT, {"prompt": "hello world " * 80_000}, "prompt"),
        (CHAT, {"messages": [USER] * 20_000}, "messages"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_large_body_is_refused_while_others_are_served(
    server: RunningServer, route: str, changes: dict[str, Any], param: str
) -> None:
    good = {"model": model_path(MODELS[route]), **BODIES[route]} if route in BODIES else {}
    check_error(server.client.post(route, json={**good, **changes}), 400, param)


@pytest.mark.parametrize("route", CONTENT)
@pytest.mark.parametrize(("what", "content", "words"), RAW, ids=[what for what, _, _ in RAW])
def test_a_body_that_is_no_json_object_is_a_400(
    server: RunningServer, route: str, what: str, content: bytes, words: str
) -> None:
    got = server.client.post(route, content=content, headers={"content-type": "application/json"})
    assert words in check_error(got, 400)["message"]


@pytest.mark.parametrize("route", [*CONTENT, SOUND])
def test_what_is_too_large_or_of_another_type_is_refused(server: RunningServer, route: str) -> None:
    large = b" " * (BODY_LIMIT + 1)
    check_error(server.client.post(route, content=large, headers={"content-type": "application/json"}), 413)
    got = server.client.post(route, content=b"<a/>", headers={"content-type": "text/xml"})
    assert check_error(got, 400)["code"] == "unsupported_content_type"
    check_error(server.client.get(route), 405)


@pytest.mark.parametrize("route", [*CONTENT, SOUND])
@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("no/such-model", 404, "model_not_found"),
        ("/no/such/folder", 404, "model_not_found"),
        ("not a name", 400, None),
        ("https://example.com/x", 400, None),
    ],
)
def test_a_model_that_is_not_there_is_refused_also_for_a_stream(
    server: RunningServer, route: str, model: str, status: int, code: str | None
) -> None:
    if route == SOUND:
        got = server.client.post(route, data={"model": model}, files={"file": ("a.wav", b"x")})
        assert check_error(got, status, "model")["code"] == code
        return
    for stream in (False, True) if route in STREAMING else (False,):
        body = {**BODIES[route], "model": model, **({"stream": True} if stream else {})}
        assert check_error(server.client.post(route, json=body), status, "model")["code"] == code


@pytest.mark.parametrize(
    ("route", "model", "status"),
    [
        (CHAT, "all-MiniLM-L6-v2", 422),
        (TEXT, "all-MiniLM-L6-v2", 422),
        (RESPONSES, "all-MiniLM-L6-v2", 422),
        (CHAT, "tiny-random-whisper", 400),
        (TEXT, "tiny-random-whisper", 400),
        (RESPONSES, "tiny-random-whisper", 400),
        (CHAT, "tiny-random-gpt2", 400),
        (VECTORS, "tiny-random-whisper", 422),
        (SOUND, "tiny-random-llama", 400),
        (SOUND, "all-MiniLM-L6-v2", 422),
    ],
)
def test_a_model_of_the_wrong_kind_is_refused(
    server: RunningServer, route: str, model: str, status: int
) -> None:
    path = model_path(model)
    if route == SOUND:
        got = server.client.post(route, data={"model": path}, files={"file": ("a.wav", b"x")})
    else:
        got = server.client.post(route, json={**BODIES[route], "model": path})
    error = check_error(got, status)
    # A chat needs a template, which is a matter of its messages; a load knows the model's kind.
    assert error["param"] in ("model", "kind", "messages")


@pytest.mark.parametrize(
    ("fields", "files", "param"),
    [
        ({}, {}, "file"),
        ({}, {"file": ("a.wav", b"")}, "file"),
        ({}, {"file": ("a.wav", b"no sound at all")}, "file"),
        ({}, {"file": ("a.wav", b"RIFF\xff\xff\xff\xffWAVEfmt ")}, "file"),
        ({}, {"other": ("a.wav", b"x")}, "file"),
        ({"model": ""}, {"file": ("a.wav", b"x")}, "model"),
        ({"temperature": "9"}, {"file": ("a.wav", b"x")}, "temperature"),
        ({"temperature": "nan"}, {"file": ("a.wav", b"x")}, "temperature"),
        ({"response_format": "pdf"}, {"file": ("a.wav", b"x")}, "response_format"),
        ({"response_format": "srt"}, {"file": ("a.wav", b"x")}, "response_format"),
        ({"language": "zz"}, {"file": ("a.wav", b"x")}, "language"),
        ({"stream": "true"}, {"file": ("a.wav", b"x")}, "stream"),
        ({"timestamp_granularities[]": "word"}, {"file": ("a.wav", b"x")}, "timestamp_granularities"),
    ],
)
def test_a_wrong_form_is_a_400_that_names_the_field(
    server: RunningServer, fields: dict[str, str], files: dict[str, Any], param: str
) -> None:
    data = {"model": model_path("tiny-random-whisper"), **fields}
    # Without any file httpx would not send a multipart form.
    check_error(server.client.post(SOUND, data=data, files=files or {"z": (None, "z")}), 400, param)


@pytest.mark.parametrize(
    "content",
    [b"", b"--x\r\n", b"no boundary at all", b"--x\r\nContent-Disposition: form-data\r\n\r\n\xff\r\n--x--"],
)
def test_a_broken_form_is_a_400(server: RunningServer, content: bytes) -> None:
    got = server.client.post(
        SOUND, content=content, headers={"content-type": "multipart/form-data; boundary=x"}
    )
    check_error(got, 400)


def test_what_is_not_here_is_a_404_or_405(server: RunningServer) -> None:
    check_error(server.client.get("/v1/nothing"), 404)
    check_error(server.client.get("/v1/models/no/such-model"), 404)
    check_error(server.client.delete(CHAT), 405)


@pytest.mark.parametrize("fails_at", [0, 3])
def test_a_fault_while_generating_is_a_json_500_with_its_traceback_in_the_log(
    server: RunningServer, tmp_path: Path, fails_at: int
) -> None:
    model = write_faulty_model(tmp_path / "faulty", fails_at)
    load = {"model_id": model, "trust_remote_code": True, "wait": True}
    server.client.post("/v1/flexserv/models/load", json=load).raise_for_status()
    for route in STREAMING:
        body = {**BODIES[route], "model": model}
        body = {name: 20 if name.startswith("max_") else value for name, value in body.items()}
        assert check_error(server.client.post(route, json=body), 500)["code"] == "generation_failed"
        streamed = server.client.post(route, json={**body, "stream": True})
        if fails_at == 0:
            check_error(streamed, 500)
            continue
        assert streamed.status_code == 200
        lines = [line for line in streamed.text.splitlines() if line.startswith("data: ")]
        if route == RESPONSES:
            failed = json.loads(lines[-1].removeprefix("data: "))
            assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
            assert sum("failed" in line for line in lines) == 1
        else:
            assert lines[-1] == "data: [DONE]"
            assert json.loads(lines[-2].removeprefix("data: "))["error"]["code"] == "generation_failed"
            assert sum('"error"' in line for line in lines) == 1
    assert "a fault of this model's code" in server.log() and "Traceback" in server.log()

    def all_idle() -> bool:
        inventory = server.client.get("/v1/flexserv/models/loaded").json()["models"]
        return {entry["active_requests"] for entry in inventory} == {0}

    assert eventually(all_idle, 30)
    good = {**BODIES[CHAT], "model": model_path(MODELS[CHAT])}
    assert server.client.post(CHAT, json=good).status_code == 200
    server.client.post("/v1/flexserv/models/unload", json={"model_id": model}).raise_for_status()
