"""Flags whose effect shows only below the answers of a real server: one server with all of them.

Its models run code of their own, which tells in the answer what it was given. Its name server is silent about
one name until the end, so its exit code, which the fixture checks, says that look-ups hold up no stop.
"""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.eventually import eventually
from tests.support.images import picture_uri
from tests.support.models import model_path
from tests.support.own_code import write_model_with_code
from tests.support.picture_server import picture_server
from tests.support.server import PROGRAM, RunningServer

FRACTION = 0.01
POOL_ON_A_CPU = 32 * 256 * 512
"""Bytes of the pool that a CPU gets by default: pages, tokens in one, bytes of tiny-random-llama's token."""
SILENT = "silent.example"
ASKED = "a look-up that hangs"
LOOK_UPS = 40
"""More than the threads that the event loop lends to everybody: at most 32."""
# The real program, but for the system's resolver.
SILENT_NAME_SERVER = f"""
import runpy, socket, sys, threading

ask = socket.getaddrinfo

def getaddrinfo(host, *args, **options):
    if host in ({SILENT!r}, {SILENT.encode()!r}):
        sys.stderr.write({ASKED!r} + chr(10))
        threading.Event().wait()
    return ask(host, *args, **options)

socket.getaddrinfo = getaddrinfo
runpy.run_path({str(PROGRAM)!r}, run_name="__main__")
"""
# Ends its answer at once where the cache has a fixed size, and never where it grows.
TELLING = """
from transformers import LlamaForCausalLM


class TellingForCausalLM(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        fixed = type(kwargs["cache"]).__name__ == "StaticCache"
        output.logits[:] = -1e4
        output.logits[..., self.config.eos_token_id if fixed else 100] = 1e4
        return output
"""


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server's temporary files would be."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def server(temporary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("program")
    program = folder / "silent_name_server.py"
    program.write_text(SILENT_NAME_SERVER)
    flags = {
        "--device": "cpu",
        "--max-loaded-models": "1",
        "--image-hosts": "any",
        "--cb-max-memory-percent": str(FRACTION),
        "--cb-max-batch-tokens": "48",
    }
    switches = ["--trust-remote-code", "--compile", "--continuous-batching"]
    words = [word for pair in flags.items() for word in pair]
    env = {
        "FLEXSERV_PER_CORE_CPU_METRICS": "false",
        "HF_MODULES_CACHE": str(folder / "modules"),
        "TMPDIR": str(temporary),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    with RunningServer(*words, *switches, env=env, program=program) as running:
        yield running


@pytest.fixture(scope="module")
def telling(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A penalty in a model's own configuration keeps it out of batches."""
    folder = tmp_path_factory.mktemp("models") / "telling"
    return write_model_with_code(folder, "TellingForCausalLM", TELLING, {"repetition_penalty": 1.1})


def load(server: RunningServer, model: str, **settings: Any) -> httpx.Response:
    return server.client.post("/v1/flexserv/models/load", json={"model_id": model, "wait": 60, **settings})


def loaded(server: RunningServer) -> dict[str, int]:
    inventory = server.client.get("/v1/flexserv/models/loaded").raise_for_status().json()
    return {one["model_id"]: one["bytes"] for one in inventory["models"]}


def complete(server: RunningServer, model: str, **fields: Any) -> dict[str, Any]:
    body = {"model": model, "prompt": "Once", "max_tokens": 4, "temperature": 0, **fields}
    answer = server.client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


def question(model: str, image: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": image}}]
    return {
        "model": model,
        "messages": [{"role": "user", "content": parts}],
        "max_tokens": 4,
        "temperature": 0,
    }


def test_trusted_code_is_run_and_compile_gives_it_a_cache_of_fixed_size(
    server: RunningServer, telling: str
) -> None:
    refused = load(server, telling, trust_remote_code=False)
    assert (refused.status_code, refused.json()["error"]["param"]) == (422, "trust_remote_code"), refused.text
    assert complete(server, telling)["finish_reason"] == "stop"
    grows = complete(server, telling, generation_config='{"cache_implementation": "dynamic"}')
    assert grows["finish_reason"] == "length"


def test_the_pool_of_a_batch_takes_the_part_of_the_memory_that_it_may(server: RunningServer) -> None:
    llama = model_path("tiny-random-llama")
    load(server, llama).raise_for_status()
    weights = loaded(server)[llama]
    complete(server, llama)
    pool = loaded(server)[llama] - weights
    assert 2 * POOL_ON_A_CPU < pool < 1.1 * FRACTION * psutil.virtual_memory().total
    assert "a pool of 0.01 of the free memory for LlamaForCausalLM, 48 tokens in a step" in server.log()


def test_max_loaded_models_makes_an_idle_one_go_and_a_pinned_one_stay(
    server: RunningServer, telling: str
) -> None:
    llama = model_path("tiny-random-llama")
    for name in (telling, llama):
        load(server, name).raise_for_status()
        assert list(loaded(server)) == [name]
    load(server, llama, pin=True).raise_for_status()
    refused = load(server, telling)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["max_loaded_models"]) == (507, "insufficient_memory", 1)
    assert list(loaded(server)) == [llama]
    load(server, llama, pin=False).raise_for_status()


def test_all_cores_are_one_series(server: RunningServer) -> None:
    def series() -> list[str]:
        lines = server.client.get("/metrics").text.splitlines()
        return [line.split(" ")[0] for line in lines if line.startswith("flexserv_cpu_utilization_ratio{")]

    # The first reading has nothing to compare with.
    assert eventually(series, 30) == ['flexserv_cpu_utilization_ratio{cpu="all"}']


def test_image_hosts_any_fetches_from_this_machine(server: RunningServer, temporary: Path) -> None:
    vision = model_path("tiny-random-vision")
    with picture_server() as pictures:
        bodies = (
            question(vision, f"http://127.0.0.1:{pictures.port}/red.png"),
            question(vision, picture_uri()),
        )
        answers = [server.client.post("/v1/chat/completions", json=body).json() for body in bodies]
        assert [path for path, _ in pictures.seen] == ["/red.png"]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert list(temporary.iterdir()) == [], "images are written nowhere"


def test_a_silent_name_server_holds_up_nobody_else(server: RunningServer) -> None:
    """The look-ups go on hanging: what comes after is to be served, and the stop to succeed, all the same."""
    vision = model_path("tiny-random-vision")
    load(server, vision).raise_for_status()
    request = server.client.build_request(
        "POST", "/v1/chat/completions", json=question(vision, f"http://{SILENT}/red.png")
    )
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    message = f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + request.read()
    host, port = server.base_url.removeprefix("http://").split(":")
    with ExitStack() as clients:
        for _ in range(LOOK_UPS):
            client = clients.enter_context(socket.create_connection((host, int(port)), timeout=30))
            client.sendall(message)
        assert eventually(lambda: server.log().count(ASKED) == 4, 30)
        assert server.client.get("/v1/flexserv/health", timeout=20).status_code == 200
        # A body of this size is read on one of the threads that are for everybody.
        large = server.client.post("/v1/embeddings", content=b"[" * 400_000, timeout=20)
        assert (large.status_code, large.json()["error"]["param"]) == (400, None), large.text
        assert server.log().count(ASKED) == 4
