"""The OpenAPI document is true: what it promises is what a fuzzer finds, and a client made from it works."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.support.clients import program, results_of, run
from tests.support.models import model_path
from tests.support.server import RunningServer

PROGRAMS = Path(__file__).parent / "programs"
CHAT_MODEL, ENCODER = "tiny-random-llama", "all-MiniLM-L6-v2"
CASES_PER_ROUTE = 10
FUZZING_S = 480


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server whose models answer fast, and that may be emptied by any request."""
    flags = ["--device", "cpu", "--default-max-tokens", "4", "--load-wait", "20"]
    flags += ["--default-model", model_path(CHAT_MODEL), "--default-embedding-model", model_path(ENCODER)]
    with RunningServer(*flags) as server:
        server.wait_until_ready()
        yield server


@pytest.mark.timeout(FUZZING_S + 60)
def test_a_fuzzer_finds_no_answer_that_the_document_does_not_describe(
    server: RunningServer, tmp_path: Path
) -> None:
    """Valid and broken requests to every route: statuses, types and bodies of the answers, and no crash."""
    config = tmp_path / "schemathesis.toml"
    config.write_text(
        # Documented: the hub is switched off, a model is not loaded, a model does not fit.
        "[checks.not_a_server_error]\nexpected-statuses = ['2xx', '4xx', 502, 503, 507]\n"
        # What the document cannot say: the last message is the user's, a name is that of a model that exists.
        "[checks.positive_data_acceptance]\nenabled = false\n"
        # A request for another process is answered 409 whatever its method is.
        "[checks.unsupported_method]\nenabled = false\n"
    )
    run(
        program("st"), "--config-file", config, "run", f"{server.base_url}/openapi.json",
        "--phases", "examples,coverage,fuzzing", "--max-examples", str(CASES_PER_ROUTE),
        "--generation-deterministic", "--suppress-health-check", "all",
        "--workers", "1", "--request-timeout", "60", "--max-failures", "20", "--no-color",
        timeout=FUZZING_S,
    )  # fmt: skip
    assert "Traceback" not in server.log()


def test_a_client_generated_from_the_document_understands_every_answer(
    server: RunningServer, tmp_path: Path
) -> None:
    document = tmp_path / "openapi.json"
    document.write_text(server.client.get("/openapi.json").raise_for_status().text)
    config = tmp_path / "generator.yaml"
    config.write_text(json.dumps({"literal_enums": True, "post_hooks": []}))
    said = run(
        program("openapi-python-client"), "generate", "--path", document, "--config", config,
        "--meta", "none", "--output-path", tmp_path / "flexserv_client", "--fail-on-warning",
    )  # fmt: skip
    assert "Warning" not in said
    sound = tmp_path / "silence.wav"
    soundfile.write(sound, np.zeros(8000), 16_000)
    got = results_of(
        PROGRAMS / "generated_program.py",
        server.base_url,
        model_path(CHAT_MODEL),
        model_path(ENCODER),
        model_path("tiny-random-whisper"),
        str(sound),
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert got == {}, json.dumps(got, indent=1)
