"""One event, one line: the two forms of the log, and the ids of requests."""

import json
import logging
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hf_transformers_backend.log_lines import FIELDS, JsonFormatter, TextFormatter
from hf_transformers_backend.request_id import carrying, current_request_id, request_id_of
from hf_transformers_backend.request_log import SANE_ID, RequestLogMiddleware

BACKEND = Path(__file__).parents[3] / "backend"


def record(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("some.logger", logging.WARNING, "file.py", 1, message, arguments, None)
    made.created, made.msecs = 1_800_000_000.25, 250.0
    for name, value in more.items():
        setattr(made, name, value)
    return made


def with_traceback(message: str) -> logging.LogRecord:
    try:
        raise LookupError("first line\nsecond line")
    except LookupError:
        made = record(message)
        made.exc_info = sys.exc_info()
        return made


def test_a_text_line_has_time_level_logger_request_and_message() -> None:
    with request_id_of("abc"):
        line = TextFormatter().format(record("loaded %s", "x"))
    assert line == "2027-01-15T08:00:00.250Z WARNING some.logger [abc]: loaded x"
    assert TextFormatter().format(record("hi")) == "2027-01-15T08:00:00.250Z WARNING some.logger: hi"


@pytest.mark.parametrize("given", ["two\nlines", "a\rb", "a\x1b[31mb", "a\x00b", "a\u2028b"])
def test_what_a_stranger_wrote_cannot_begin_a_line_or_color_one(given: str) -> None:
    line = TextFormatter().format(record("asked for %s", given))
    assert len(line.splitlines()) == 1 and "\x1b" not in line and "\x00" not in line
    (only,) = JsonFormatter().format(record("asked for %s", given)).split("\n")
    assert json.loads(only)["message"] == f"asked for {given}"


def test_letters_of_all_scripts_stay_as_they_are() -> None:
    assert TextFormatter().format(record("Größe 中文\tx\n")).endswith(": Größe 中文\tx")
    assert "中文" in JsonFormatter().format(record("中文"))


def test_a_traceback_follows_indented_in_text_and_is_a_field_in_json() -> None:
    first, *rest = TextFormatter().format(with_traceback("it broke")).splitlines()
    assert first.endswith(": it broke") and all(line.startswith("    ") for line in rest)
    entry = json.loads(JsonFormatter().format(with_traceback("it broke")))
    assert entry["exception"].endswith("LookupError: first line\nsecond line")


def test_json_has_the_fixed_keys_and_what_the_event_says_and_no_more() -> None:
    entry = json.loads(JsonFormatter().format(record("x", model="m", reason="idle", color_message="no")))
    assert entry == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "warning",
        "logger": "some.logger",
        "message": "x",
        "model": "m",
        "reason": "idle",
    }
    assert not set(FIELDS) & set(vars(record("x"))), "a field that every record has would always be shown"


def test_work_for_another_thread_carries_the_id() -> None:
    seen: list[str | None] = []
    with request_id_of("abc"):
        work = carrying(lambda: seen.append(current_request_id()))
    for target in (work, lambda: seen.append(current_request_id())):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join(20)
    assert seen == ["abc", None] and current_request_id() is None


async def answered_id(given: bytes | None) -> str:
    """The id that a request with this header gets back."""
    told: list[str] = []

    async def app(scope, receive, send):  # type: ignore[no-untyped-def]
        told.append(current_request_id() or "")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message):  # type: ignore[no-untyped-def]
        if message["type"] == "http.response.start":
            told.append(dict(message["headers"])[b"x-request-id"].decode())

    headers = [] if given is None else [(b"x-request-id", given)]
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": headers}
    await RequestLogMiddleware(app)(scope, None, send)  # type: ignore[arg-type]
    within, back = told
    assert within == back
    return back


@pytest.mark.parametrize("given", [b"a", b"req_8fKx-1.2:3", b"Root=1-67891233-abcdef", b"x" * 128])
async def test_a_sane_id_of_the_client_is_taken_over(given: bytes) -> None:
    assert await answered_id(given) == given.decode()


@pytest.mark.parametrize("given", [None, b"", b"x" * 129, b"a b", b"a\tb", b"\xe9", b'"', b"a;b", b"a\x00"])
async def test_another_one_is_replaced(given: bytes | None) -> None:
    made = await answered_id(given)
    assert SANE_ID.fullmatch(made) and len(made) == 32
    assert made != await answered_id(given)


PROGRAM = """
import logging, sys, warnings
from hf_transformers_backend.log_lines import adopt_loggers_of_libraries, configure_logging
library = logging.getLogger("some_library")
library.addHandler(logging.StreamHandler())
library.propagate = False
configure_logging(sys.argv[1], sys.argv[2])
adopt_loggers_of_libraries()
ours = logging.getLogger("hf_transformers_backend.x")
ours.debug("ours at debug")
library.debug("theirs at debug")
library.info("theirs at info")
logging.getLogger("uvicorn.error").warning("no HTTP")
logging.getLogger("uvicorn.error").error("theirs at error")
logging.getLogger("python_multipart.multipart").warning("no form")
ours.info("%d", "not a number")
warnings.warn("careful", DeprecationWarning)
print("printed\\nin two lines")
sys.stderr.write("unfinished ")
sys.stderr.write("line\\n")
raise RuntimeError("at the top")
"""


def run(level: str, form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", PROGRAM, level, form],
        env={"PYTHONPATH": str(BACKEND)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    return (done.stdout + done.stderr).splitlines()


def test_whoever_writes_in_a_process_writes_json_lines() -> None:
    entries = [json.loads(line) for line in run("debug", "json")]
    said = [(entry["level"], entry["logger"], entry["message"].split(" (")[0]) for entry in entries]
    assert said == [
        ("debug", "hf_transformers_backend.x", "ours at debug"),
        ("info", "some_library", "theirs at info"),
        ("info", "uvicorn.error", "no HTTP"),
        ("error", "uvicorn.error", "theirs at error"),
        ("info", "python_multipart.multipart", "no form"),
        ("error", "hf_transformers_backend.x", "a log message cannot be formatted"),
        ("warning", "py.warnings", "DeprecationWarning: careful"),
        ("info", "stdout", "printed"),
        ("info", "stdout", "in two lines"),
        ("warning", "stderr", "unfinished line"),
        ("critical", "hf_transformers_backend", "nobody caught this"),
    ]
    assert entries[-1]["exception"].endswith("RuntimeError: at the top")


@pytest.mark.parametrize(
    ("least", "said"), [("error", {"error", "critical"}), ("warning", {"warning", "error", "critical"})]
)
def test_the_level_is_the_least_that_is_said(least: str, said: set[str]) -> None:
    entries = [json.loads(line) for line in run(least, "json")]
    assert {entry["level"] for entry in entries} == said
    assert not any(entry["message"] in ("no HTTP", "no form") for entry in entries)


def test_why_it_does_not_start_is_said_at_every_level_and_in_the_form_of_the_log() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        flags = ["--port", str(taken.getsockname()[1]), "--log-level", "critical"]
        said = {}
        for form in ("text", "json"):
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "hf_transformers_backend.backend_server",
                    *flags,
                    "--log-format",
                    form,
                ],
                env={"PYTHONPATH": str(BACKEND)},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 2
            (said[form],) = done.stderr.splitlines()
    assert said["text"].startswith("flexserv-backend: error: cannot listen on 127.0.0.1:")
    assert json.loads(said["json"])["message"] == said["text"]


def test_in_text_a_traceback_is_the_only_thing_that_takes_more_than_a_line() -> None:
    lines = run("info", "text")
    assert lines[:2] == ["printed", "in two lines"], "what is printed stays as it is"
    assert sum(line.startswith("    ") for line in lines) >= 3
    assert any("CRITICAL hf_transformers_backend: nobody caught this" in line for line in lines)
