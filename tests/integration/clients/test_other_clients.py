"""Programs that other people wrote for OpenAI's API, each as it comes, configured with our address."""

import math
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.clients.conftest import QUESTION
from tests.support.clients import program, results_of, run
from tests.support.models import model_path
from tests.support.server import RunningServer

PROGRAMS = Path(__file__).parent / "programs"


def test_langchain_chats_streams_and_embeds(api: str, greedy_answer: str) -> None:
    got = results_of(PROGRAMS / "langchain_program.py", api, QUESTION)
    assert got["chat"] == got["streamed"] == got["responses_api"] == greedy_answer
    assert got["tokens"] == got["streamed_tokens"] > 0
    assert got["finish_reason"] in ("stop", "length")
    assert "Paris" in got["completion"]
    assert math.isclose(math.hypot(*got["query"]), 1, rel_tol=1e-5)
    assert got["query"] == pytest.approx(got["documents"][0], abs=1e-5)
    assert got["query"] != pytest.approx(got["documents"][1], abs=0.1)


def test_litellm_chats_streams_completes_and_embeds(api: str, greedy_answer: str) -> None:
    got = results_of(PROGRAMS / "litellm_program.py", api, QUESTION)
    assert got["chat"] == got["streamed"] == greedy_answer
    assert got["tokens"] > 0 and got["completion"]
    assert [math.hypot(*vector) for vector in got["vectors"]] == pytest.approx([1, 1], rel=1e-5)
    assert got["refused"] == 404


def test_the_llm_command_answers(api: str, greedy_answer: str, tmp_path: Path) -> None:
    models = [{"model_id": "ours", "model_name": "smollm2", "api_base": api}]
    (tmp_path / "extra-openai-models.yaml").write_text(yaml.safe_dump(models))
    env = {"LLM_USER_PATH": str(tmp_path)}
    options = ["-m", "ours", "-o", "temperature", "0", "-o", "max_tokens", "16"]
    assert "ours" in run(program("llm"), "models", "list", env=env)
    for stream in ([], ["--no-stream"]):
        assert run(program("llm"), *options, *stream, QUESTION, env=env).strip() == greedy_answer


@pytest.mark.timeout(300)
def test_transformers_chat_loads_its_model_and_talks(api: str, server: RunningServer, tmp_path: Path) -> None:
    """The command that comes with transformers: it loads through /load_model, and reads our events."""

    def chat(model: str, said: str) -> str:
        command = [str(Path(sys.executable).with_name("transformers")), "chat", model, api]
        flags = ["max_new_tokens=16", "do_sample=False", "--user", "tester", "--save-folder", str(tmp_path)]
        # Its client refuses every address, ours too, where the hub is switched off.
        env = {"COLUMNS": "200", "HF_HUB_OFFLINE": "0"}
        return run(*command, *flags, text=f"{said}!exit\n", env=env)

    path = model_path("tiny-random-llama")
    assert "is warm" in chat(path, "")
    loaded = server.client.get("/v1/flexserv/models/loaded").json()["models"]
    assert path in {model["model_id"] for model in loaded}
    screen = chat("smollm2", f"{QUESTION}\n")
    assert "smollm2 was already loaded" in screen
    assert "Paris" in screen.partition("<smollm2>:")[2]
