"""A server's whole log, from start to stop: JSON, line by line, tied to its requests, silent on secrets."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.model_copies import model_with_template
from tests.support.server import PROGRAM, RunningServer

USER_TOKEN, ADMIN_TOKEN = "user-token-8f1b2c", "admin-token-77aa31"
PROMPT = "my-password-is-hunter2"
SECRETS = (USER_TOKEN, ADMIN_TOKEN, PROMPT, "hunter2", "wrong-token-5c5c")
FIXED = {"time", "level", "logger", "message"}
ALLOWED = FIXED | {
    "request_id",
    "exception",
    "model",
    "reason",
    "active_requests",
    "status",
    "seconds",
}

REFUSING = "{{ raise_exception('cannot continue: ' ~ messages[0]['content']) }}"
# The real program, but for one function with a bug in it, which does what careless libraries do.
CARELESS = f"""
import sys, threading, warnings
sys.path.insert(0, {str(PROGRAM.parents[1])!r})
from hf_transformers_backend import backend_server
from hf_transformers_backend.residency import Residency

def careless(residency):
    print("printed by a library")
    warnings.warn("a warning of a library")
    from tqdm import tqdm
    for _ in tqdm(range(2), desc="a bar of a library"):
        pass
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    raise RuntimeError("an injected bug")

Residency.catalog = careless
sys.exit(backend_server.main())
"""


class Story:
    """What was asked of the server, and what it wrote."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.lines = [line for line in log.splitlines() if line]

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def of(self, request_id: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries() if entry.get("request_id") == request_id]


@pytest.fixture(scope="module")
def story(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("careless")
    program = folder / "careless.py"
    program.write_text(CARELESS)
    llama, encoder = str(models / "tiny-random-llama"), str(models / "all-MiniLM-L6-v2")
    flags = (
        "--device", "cpu", "--log-format", "json", "--log-level", "debug", "--oom-monitor",
        "--flexserv-token", USER_TOKEN, "--admin-token", ADMIN_TOKEN, "--default-model", llama,
    )  # fmt: skip
    with RunningServer(*flags, program=program) as server:
        server.client.headers["authorization"] = f"Bearer {ADMIN_TOKEN}"
        # A server with a bug does not answer as its document says.
        server.client.event_hooks = {}
        server.wait_until_ready()
        play(server, llama, encoder, str(models / "SmolLM2-135M-Instruct"))
        be_refused_by_a_template(server, model_with_template("tiny-random-llama", folder / "model", REFUSING))
        server.stop()
        yield Story(server.log())


def play(server: RunningServer, llama: str, encoder: str, slow: str) -> None:
    """Requests that succeed, fail, break, and hold a model while it is unloaded."""
    client = server.client
    chat = {"model": llama, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4}
    answered = client.post("/v1/chat/completions", json=chat, headers={"X-Request-Id": "told-by-client"})
    assert answered.status_code == 200 and answered.headers["x-request-id"] == "told-by-client"
    cold = {"model": encoder, "input": PROMPT}
    client.post("/v1/embeddings", json=cold, headers={"X-Request-Id": "cold"}).raise_for_status()
    refused = client.get("/v1/models", headers={"Authorization": "Bearer wrong-token-5c5c"})
    assert refused.status_code == 401 and refused.headers["x-request-id"]
    for number, body in enumerate(
        (
            b'{"model": "' + PROMPT.encode(),
            json.dumps({"model": PROMPT, "prompt": PROMPT}).encode(),
            json.dumps({**chat, "messages": [{"role": PROMPT, "content": PROMPT}]}).encode(),
            json.dumps({**chat, "chat_template_kwargs": {"tools": PROMPT}}).encode(),
            json.dumps({**chat, "temperature": PROMPT}).encode(),
        )
    ):
        bad = client.post("/v1/chat/completions", content=body, headers={"X-Request-Id": f"bad-{number}"})
        assert 400 <= bad.status_code < 500, bad.text
    broken = client.get("/v1/models", headers={"X-Request-Id": "broken"})
    assert broken.status_code == 500
    unload_while_streaming(server, slow)


def be_refused_by_a_template(server: RunningServer, model: str) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": PROMPT}]}
    refused = server.client.post("/v1/chat/completions", json=body, headers={"X-Request-Id": "refused"})
    assert refused.status_code == 400, refused.text


def unload_while_streaming(server: RunningServer, model: str) -> None:
    # Both tokens that could end the text are ruled out: it goes on for minutes.
    endless = {"max_tokens": 4000, "logit_bias": {"0": -100, "2": -100}}
    body = {"model": model, "prompt": PROMPT, "stream": True, **endless}
    client, begun, done = server.client, threading.Event(), threading.Event()

    def read() -> None:
        headers = {"X-Request-Id": "streaming"}
        with client.stream("POST", "/v1/completions", json=body, headers=headers) as stream:
            for _ in stream.iter_lines():
                begun.set()
                if done.is_set():
                    return

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert begun.wait(60)
        gone = client.post(
            "/v1/flexserv/models/unload", json={"model_id": model}, headers={"X-Request-Id": "unloading"}
        )
        assert gone.status_code == 200, gone.text
    finally:
        done.set()
        reader.join(60)
    eventually(lambda: '"streaming"' in server.log(), 30)


def test_every_line_is_a_json_object_with_the_fixed_keys(story: Story) -> None:
    for line in story.lines:
        entry = json.loads(line)
        assert FIXED <= set(entry) <= ALLOWED, line
        assert all(isinstance(entry[key], str) for key in FIXED), line
    sources = {entry["logger"].partition(".")[0] for entry in story.entries()}
    assert {"uvicorn", "hf_transformers_backend", "sentence_transformers", "py", "stdout"} <= sources


def test_neither_a_prompt_nor_a_token_is_in_the_log(story: Story) -> None:
    assert [secret for secret in SECRETS if secret in story.log] == []


def test_a_bug_is_one_line_with_its_traceback_and_its_request(story: Story) -> None:
    (fault,) = [entry for entry in story.of("broken") if "exception" in entry]
    assert fault["level"] == "error"
    assert "RuntimeError: an injected bug" in fault["exception"]
    assert "Traceback (most recent call last)" in fault["exception"]


def test_what_libraries_print_and_warn_of_are_lines_too(story: Story) -> None:
    def one(logger: str, text: str) -> bool:
        return any(e["logger"] == logger and text in e["message"] for e in story.entries())

    assert one("stdout", "printed by a library")
    assert one("py.warnings", "UserWarning: a warning of a library")
    assert any("ZeroDivisionError" in entry.get("exception", "") for entry in story.entries())


def test_a_request_is_followed_by_its_id_into_the_threads_that_serve_it(story: Story) -> None:
    (end,) = [e for e in story.of("told-by-client") if e["logger"].endswith("request_log")]
    assert (end["status"], end["message"].split(" after")[0]) == (
        200,
        "POST /v1/chat/completions answered 200",
    )
    loggers = {entry["logger"] for entry in story.of("cold")}
    assert {"hf_transformers_backend.residency.core", "sentence_transformers.base.model"} <= loggers
    assert all(len(story.of(f"bad-{number}")) >= 1 for number in range(5))
    assert any("refused a conversation" in entry["message"] for entry in story.of("refused"))


def test_a_model_that_goes_while_it_is_used_is_warned_of_with_the_count(story: Story) -> None:
    (gone,) = [e for e in story.of("unloading") if e["logger"].endswith("residency.shelf")]
    assert (gone["level"], gone["reason"], gone["active_requests"]) == ("warning", "manual", 1)
    assert gone["model"].endswith("SmolLM2-135M-Instruct")


def test_no_library_writes_past_the_log_and_no_load_draws_a_bar(story: Story) -> None:
    printed = [entry["message"] for entry in story.entries() if entry["logger"] in ("stdout", "stderr")]
    ours = ("printed by a library", "a bar of a library")
    assert printed and [text for text in printed if not any(own in text for own in ours)] == []
