"""Start, readiness and end of the process."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.models import model_path
from tests.support.server import PROGRAM, RunningServer

ENDLESS = {"logit_bias": {"0": -100, "2": -100}}
"""Never the end of a text: both tokens that could be it are ruled out."""


def test_a_server_is_ready_when_its_models_are_in_and_the_operator_says_so(tmp_path: Path) -> None:
    flags = ["--ready-after-sync", "--on-demand", "declared", "--state-dir", str(tmp_path)]
    tiny, absent = model_path("tiny-random-llama"), "org/absent"
    with RunningServer(*flags, "--default-model", tiny, env={"FLEXSERV_POD_UID": "uid-1"}) as server:
        health = server.client.get("/v1/flexserv/health")
        assert (health.status_code, health.json()["status"], health.json()["pod_uid"]) == (
            503,
            "starting",
            "uid-1",
        )
        eventually(lambda: server.client.get("/v1/flexserv/health").json()["model_status"] == "loaded", 60)
        assert server.client.get("/v1/flexserv/health").status_code == 503
        chat = {"model": absent, "messages": [{"role": "user", "content": "hi"}]}
        assert server.client.post("/v1/chat/completions", json=chat).json()["error"]["code"] == "not_synced"
        server.client.post("/v1/flexserv/declared", json={"models": [], "hash": "h"}).raise_for_status()
        assert server.client.post("/v1/chat/completions", json=chat).json()["error"]["code"] == "not_declared"
        assert server.client.post("/v1/flexserv/synced").status_code == 200
        assert server.client.get("/v1/flexserv/health").json()["status"] == "ok"
        server.client.post("/reset").raise_for_status()
        assert server.client.get("/v1/flexserv/health").status_code == 200
        assert "flexserv_ready 1.0" in server.client.get("/metrics").text
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 5
    assert list(tmp_path.iterdir()) == []


def test_a_missing_default_model_does_not_keep_the_server_down() -> None:
    with RunningServer("--default-model", "org/absent") as server:
        server.wait_until_ready()
        health = server.client.get("/v1/flexserv/health").json()
        assert (health["model"], health["model_status"]) == ("org/absent", "failed")


def test_a_stop_lets_the_running_stream_end_and_takes_no_new_work() -> None:
    path = model_path("SmolLM2-135M-Instruct")
    chat = {
        "model": path,
        "messages": [{"role": "user", "content": "Tell a long story."}],
        "max_tokens": 100,
        "stream": True,
        **ENDLESS,
    }
    with (
        RunningServer("--shutdown-timeout", "80") as server,
        # Made while there is time; a connection of its own for each request, as a stop closes idle ones.
        httpx.Client(base_url=server.base_url, timeout=30, headers={"Connection": "close"}) as latecomer,
    ):
        server.client.post("/v1/flexserv/models/load", json={"model_id": path, "wait": 60}).raise_for_status()
        with server.client.stream("POST", "/v1/chat/completions", json=chat) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            server.terminate()
            health = eventually(
                lambda: (r := latecomer.get("/v1/flexserv/health")).status_code == 503 and r, 30
            )
            assert health.json()["status"] == "draining"
            refused = latecomer.post("/v1/chat/completions", json=chat)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert server.stop() == 0


def test_a_stream_beyond_the_limit_is_cut_with_an_error_and_its_end_and_the_exit_is_clean(
    tmp_path: Path,
) -> None:
    path = model_path("SmolLM2-135M-Instruct")
    again = tmp_path / "again"  # a model of its own: the requests of one are served in turn
    again.symlink_to(path)
    question, ask = "Count to a million.", {"stream": True, "temperature": 0}
    chat = {**ask, "model": path, "messages": [{"role": "user", "content": question}], "max_tokens": 5000}
    chat |= ENDLESS
    other = {**ask, "model": str(again), "input": question, "max_output_tokens": 5000}
    other["generation_config"] = json.dumps({"suppress_tokens": [0, 2]})
    with (
        socket.create_server(("127.0.0.1", 0)) as silent_hub,
        RunningServer(
            "--shutdown-timeout",
            "1",
            env={"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{silent_hub.getsockname()[1]}"},
        ) as server,
    ):
        server.client.post("/v1/flexserv/models/load", json={"model_id": path, "wait": 60}).raise_for_status()
        with (
            server.client.stream("POST", "/v1/chat/completions", json=chat) as first,
            server.client.stream("POST", "/v1/responses", json=other) as second,
            server.client.stream("POST", "/load_model", json={"model": "org/slow"}) as third,
        ):
            lines, events, progress = first.iter_lines(), second.iter_lines(), third.iter_lines()
            next(lines)
            next(events)
            assert json.loads(next(progress).removeprefix("data: "))["status"] == "loading"
            began = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - began < 15
            *_, error, end = [line for line in lines if line]
            assert json.loads(error.removeprefix("data: "))["error"]["code"] == "draining"
            assert end == "data: [DONE]"
            *_, name, data = [line for line in events if line]
            assert name == "event: response.failed"
            assert json.loads(data.removeprefix("data: "))["response"]["status"] == "failed"
            *_, last = [json.loads(line.removeprefix("data: ")) for line in progress if line]
            assert (last["status"], last["model"], last["code"]) == ("error", "org/slow", "draining")
        assert "for 3 running requests" in server.log()
        assert "Traceback" not in server.log() and "without completing response" not in server.log()


def test_who_is_cut_at_the_limit_is_sent_elsewhere() -> None:
    path = model_path("SmolLM2-135M-Instruct")
    chat = {"model": path, "messages": [{"role": "user", "content": "Count to a million."}]}
    answers: list[httpx.Response] = []
    with RunningServer("--shutdown-timeout", "0.5") as server:
        server.client.post("/v1/flexserv/models/load", json={"model_id": path, "wait": 60}).raise_for_status()

        def ask(stream: bool) -> None:
            body = {**chat, "max_tokens": 5000, "stream": stream, **ENDLESS}
            answers.append(httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60))

        requests = [threading.Thread(target=ask, args=(stream,)) for stream in (False, False, True)]
        requests[0].start()
        eventually(lambda: _inventory(server)["models"][0]["active_requests"] == 1, 30)
        for request in requests[1:]:
            request.start()
        eventually(lambda: _inventory(server)["models"][0]["active_requests"] == 3, 30)
        assert server.stop() == 0
        for request in requests:
            request.join(30)
        assert [answer.status_code for answer in answers] == [503] * 3
        assert {answer.json()["error"]["code"] for answer in answers} == {"draining"}
        assert "Traceback" not in server.log()


def test_a_signal_while_the_libraries_are_imported_ends_the_process_well() -> None:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "--port", "0", "--log-level", "debug"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        eventually(lambda: _handles(process.pid, signal.SIGTERM), 60, interval=0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "SIGTERM before the start was done" in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def _handles(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def test_a_second_signal_ends_the_process_at_once() -> None:
    path = model_path("SmolLM2-135M-Instruct")
    chat = {
        "model": path,
        "messages": [{"role": "user", "content": "Count."}],
        "stream": True,
        "max_tokens": 5000,
        **ENDLESS,
    }
    with RunningServer(expected_exit=1) as server:
        server.client.post("/v1/flexserv/models/load", json={"model_id": path, "wait": 60}).raise_for_status()
        with server.client.stream("POST", "/v1/chat/completions", json=chat) as stream:
            next(stream.iter_lines())
            server.terminate()
            eventually(lambda: "draining" in server.log(), 30)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) == 1


@pytest.mark.timeout(300)
def test_a_load_in_progress_is_aborted_and_its_waiter_told() -> None:
    """A GGUF file takes seconds to unpack: long enough to unload in the middle."""
    path = f"{model_path('SmolLM2-135M-Instruct-GGUF')}:SmolLM2-135M-Instruct.Q4_1.gguf"
    chat = {"model": path, "messages": [{"role": "user", "content": "hi"}]}
    with RunningServer() as server:
        answers: list[httpx.Response] = []
        request = threading.Thread(
            target=lambda: answers.append(
                httpx.post(f"{server.base_url}/v1/chat/completions", json=chat, timeout=60)
            )
        )
        request.start()
        eventually(
            lambda: [job["stage"] for job in _inventory(server)["loading"]] == ["weights"], 60, interval=0.05
        )
        began = time.monotonic()
        reply = server.client.post("/v1/flexserv/models/unload", json={"model_id": path}).json()
        assert (reply["unloaded"][0]["was_loading"], reply["unloaded"][0]["was_loaded"]) == (True, False)
        request.join(60)
        told_after = time.monotonic() - began
        assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "model_unloaded")
        eventually(lambda: "was aborted" in server.log(), 120)
        assert told_after < (time.monotonic() - began) * 0.8, "the waiter had to wait for the end of the load"
        assert _inventory(server)["models"] == []
        assert 'flexserv_model_loads_total{outcome="aborted"} 1.0' in server.client.get("/metrics").text


def test_a_taken_port_is_one_line_and_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, str(PROGRAM), "--port", port],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert f"cannot listen on 127.0.0.1:{port} (--host, --port): Address already in use" in done.stderr


@pytest.mark.parametrize("device", ["cuda:99", "99"])
def test_a_device_that_is_not_there_is_one_line_and_exit_code_2(device: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--port", "0", "--device", device],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"flexserv-backend: error: --device: there is no {device} here")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("installed", ["5.23.1", "6.0.0", "5.2.0"])
def test_another_release_of_transformers_is_refused(installed: str) -> None:
    from hf_transformers_backend.upstream.version import UnsupportedTransformers, check_transformers_version

    with pytest.raises(UnsupportedTransformers, match=r"install 'transformers==5\.24\.\*'"):
        check_transformers_version(installed)


def _inventory(server: RunningServer) -> dict[str, list[dict[str, str]]]:
    return server.client.get("/v1/flexserv/models/loaded").raise_for_status().json()  # type: ignore[no-any-return]


def test_a_server_that_is_full_or_closed_says_so() -> None:
    flags = ["--device", "cpu", "--on-demand", "off", "--oom-monitor"]
    flags += ["--oom-ram-threshold", "0.1", "--oom-check-interval", "3600"]
    path = model_path("SmolLM2-135M-Instruct")
    with RunningServer(*flags) as server:
        chat = {"model": path, "messages": [{"role": "user", "content": "hi"}]}
        refused = server.client.post("/v1/chat/completions", json=chat)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_declared")
        full = server.client.post("/v1/flexserv/models/load", json={"model_id": path, "wait": True})
        error = full.json()["error"]
        assert (full.status_code, error["code"]) == (507, "insufficient_memory")
        assert error["needed_bytes"] > 200_000_000 and error["available_bytes"] == 0
        (failure,) = _inventory(server)["failed"]
        assert failure["needed_bytes"] == error["needed_bytes"]
