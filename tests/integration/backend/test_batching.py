"""`--continuous-batching` on the real server: OpenAI's client, real weights, on a CPU."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from openai import OpenAI
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.support.eventually import eventually
from tests.support.models import model_path
from tests.support.server import RunningServer

QUESTIONS = [
    "What is the capital of France?",
    "Name three colors.",
    "Écris « été » en français, s'il te plaît.",
    "Count to five.",
]
TOKENS = 20
POOL_BYTES = 32 * 256 * 2 * 30 * 3 * 64 * 4
"""Pages, tokens, keys and values, layers, heads, their size, bytes: the pool of SmolLM2-135M in float32."""


@pytest.fixture(scope="module")
def smol() -> str:
    return model_path("SmolLM2-135M-Instruct")


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer("--continuous-batching", "--device", "cpu", "--dtype", "float32") as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def library_answers(path: str) -> list[tuple[str, int]]:
    """What transformers itself answers, greedily, one question after another."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    answers = []
    for question in QUESTIONS:
        inputs = tokenizer.apply_chat_template(
            chat(question), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            ids = model.generate(**inputs, do_sample=False, max_new_tokens=TOKENS)
        new = ids[0, inputs["input_ids"].shape[1] :]
        answers.append((tokenizer.decode(new, skip_special_tokens=True), len(new)))
    return answers


def chat(question: str) -> list[Any]:
    return [{"role": "user", "content": question}]


def streamed(client: OpenAI, model: str, question: str) -> tuple[str, int]:
    stream = client.chat.completions.create(
        model=model,
        messages=chat(question),
        max_tokens=TOKENS,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, used = "", 0
    for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
        used = chunk.usage.completion_tokens if chunk.usage else used
    return text, used


def threads(server: RunningServer) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/task").iterdir()))


def generated_tokens(server: RunningServer) -> float:
    lines = server.client.get("/metrics").text.splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in lines if re.match(r"\S*generat\S*tokens_total", line)
    )


def test_four_streams_at_once_are_what_transformers_answers_and_unload_gives_all_back(
    server: RunningServer, client: OpenAI, smol: str
) -> None:
    expected = library_answers(smol)
    before = server.client.post("/v1/flexserv/models/load", json={"model_id": smol, "wait": True})
    assert before.status_code == 200, before.text
    loaded = server.resident_bytes()
    with ThreadPoolExecutor(len(QUESTIONS)) as clients:
        answers = list(clients.map(lambda question: streamed(client, smol, question), QUESTIONS))
    assert answers == expected
    whole = client.chat.completions.create(
        model=smol, messages=chat(QUESTIONS[0]), max_tokens=TOKENS, temperature=0
    )
    assert whole.choices[0].message.content == expected[0][0]
    busy_threads, busy_bytes = threads(server), server.resident_bytes()
    unloaded = server.client.post("/v1/flexserv/models/unload", json={"model_id": smol})
    assert unloaded.status_code == 200, unloaded.text
    eventually(lambda: threads(server) < busy_threads, 30)
    eventually(lambda: server.resident_bytes() < busy_bytes - POOL_BYTES * 0.8, 30)
    assert server.resident_bytes() < loaded + POOL_BYTES * 0.2


def test_a_gone_client_ends_its_batched_generation(server: RunningServer, client: OpenAI) -> None:
    llama = model_path("tiny-random-llama")
    before = generated_tokens(server)
    with client.completions.create(
        model=llama, prompt="x", max_tokens=100_000, temperature=0, stream=True
    ) as stream:
        next(iter(stream))
    counted = eventually(lambda: generated_tokens(server) - before, 30)
    loaded = server.client.get("/v1/flexserv/models/loaded").json()["models"]
    assert [model["active_requests"] for model in loaded] == [0]
    context = AutoConfig.from_pretrained(llama).max_position_embeddings
    assert 0 < counted < context - 10 and generated_tokens(server) - before == counted


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1e-40},
        {"extra_body": {"generation_config": '{"do_sample": true, "temperature": 1e-40}'}},
    ],
)
def test_a_temperature_next_to_nothing_is_greedy_in_a_batch_too(
    client: OpenAI, fields: dict[str, Any]
) -> None:
    def answer(**sampling: Any) -> str:
        got = client.completions.create(
            model=model_path("tiny-random-llama"), prompt="Once", max_tokens=12, **sampling
        )
        return got.choices[0].text

    greedy = answer(temperature=0)
    with ThreadPoolExecutor(3) as clients:
        beside = [clients.submit(answer, temperature=1.5) for _ in range(2)]
        assert answer(**fields) == greedy
        assert greedy not in {one.result() for one in beside}, "those sample beside it"


def test_a_seed_is_refused_by_name(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model_path("tiny-random-llama"), prompt="x", temperature=1, seed=3)
    assert caught.value.param == "seed"
    assert caught.value.code == "unsupported_with_continuous_batching"
