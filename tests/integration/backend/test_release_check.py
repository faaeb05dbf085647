"""The program that the pods of `helm test` run, against a real backend with tokens."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.models import model_path
from tests.support.server import RunningServer

PROGRAM = Path(__file__).parents[3] / "charts" / "flexserv" / "files" / "release_test.py"
TOKENS = {"token": "for-clients", "admin-token": "for-admins"}
SECONDS = 120


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    for name, token in TOKENS.items():
        (folder / name).write_text(token + "\n")
    return folder


@pytest.fixture(scope="module")
def server(tokens: Path) -> Iterator[RunningServer]:
    files = {"--flexserv-token-file": "token", "--admin-token-file": "admin-token"}
    flags = [word for flag, name in files.items() for word in (flag, str(tokens / name))]
    with RunningServer("--device", "cpu", *flags) as server:
        server.client.headers["Authorization"] = f"Bearer {TOKENS['admin-token']}"
        server.wait_until_ready()
        yield server


def check(server: RunningServer, what: str, **env: str) -> tuple[int, str]:
    """Exit code and output of one check, run as the pod runs it."""
    address = urlsplit(server.base_url)
    where = {"BACKEND_HOST": str(address.hostname), "BACKEND_PORT": str(address.port)}
    command = [sys.executable, "-c", PROGRAM.read_text(encoding="utf-8"), what]
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "LOAD_TIMEOUT": "60", **where, **env},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def resident(server: RunningServer) -> list[str]:
    models = server.client.get("/v1/flexserv/models/loaded").json()["models"]
    return [model["model_id"] for model in models]


def test_health_and_metrics_need_no_token(server: RunningServer) -> None:
    code, said = check(server, "health")

    assert (code, said.splitlines()) == (
        0,
        [f"ok: {server.base_url} is ready on cpu", "ok: /metrics can be scraped"],
    )


def test_a_model_is_loaded_asked_and_taken_away_again(server: RunningServer, tokens: Path) -> None:
    model = model_path("tiny-random-llama")

    code, said = check(server, "model", TEST_MODEL=model, TOKEN_FOLDER=str(tokens))

    assert code == 0, said
    assert said.startswith(f"ok: {model} is loaded\nok: {model} answered with ")
    assert model not in resident(server)


def test_a_model_that_is_there_is_asked_and_stays(server: RunningServer, tokens: Path) -> None:
    assert check(server, "model", TOKEN_FOLDER=str(tokens)) == (
        0,
        "ok: no model is resident and tests.model names none: nothing was loaded, nothing was asked\n",
    )
    model = model_path("tiny-random-llama")
    body = {"model_id": model, "served_name": "org/tiny", "wait": 60}
    server.client.post("/v1/flexserv/models/load", json=body).raise_for_status()

    code, said = check(server, "model", TOKEN_FOLDER=str(tokens))

    assert code == 0, said
    assert said.startswith("ok: org/tiny is already loaded\n")
    assert resident(server) == [model]


@pytest.mark.parametrize(
    ("model", "with_tokens", "reason"),
    [("/models/absent", True, "404"), (model_path("tiny-random-llama"), False, "401")],
)
def test_what_goes_wrong_is_said_and_fails(
    server: RunningServer, tokens: Path, model: str, with_tokens: bool, reason: str
) -> None:
    env = {"TOKEN_FOLDER": str(tokens)} if with_tokens else {}

    code, said = check(server, "model", TEST_MODEL=model, **env)

    assert code == 1
    assert f"/v1/flexserv/models/load: {reason} " in said


def test_a_backend_that_is_not_there_fails() -> None:
    class Nowhere:
        base_url = "http://127.0.0.1:1"

    code, said = check(Nowhere(), "health")  # type: ignore[arg-type]
    assert (code, "http://127.0.0.1:1/health: " in said) == (1, True)
