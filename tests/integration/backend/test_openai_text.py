"""OpenAI's own client against the real server and small real models: chat, completions, responses."""

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
import torch
from openai import OpenAI
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.support.eventually import eventually
from tests.support.images import picture_uri
from tests.support.models import model_path
from tests.support.server import RunningServer

FRANCE: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
QUESTIONS = [
    "What is the capital of France?",
    "Name three colors.",
    "Écris « été » en français, s'il te plaît.",
]


@pytest.fixture(scope="module")
def smol() -> str:
    return model_path("SmolLM2-135M-Instruct")


@pytest.fixture(scope="module")
def llama() -> str:
    return model_path("tiny-random-llama")


@pytest.fixture(scope="module")
def server(smol: str) -> Iterator[RunningServer]:
    with RunningServer("--default-model", smol, "--device", "cpu", "--max-queue", "2") as running:
        running.wait_until_ready()
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=90) as made:
        yield made


@pytest.fixture(scope="module")
def library(smol: str) -> Iterator[Any]:
    """What transformers itself answers, greedily, in this process."""
    tokenizer = AutoTokenizer.from_pretrained(smol)
    model = AutoModelForCausalLM.from_pretrained(smol, dtype="auto").eval()

    def answer(question: str, tokens: int) -> tuple[str, int]:
        chat = [{"role": "user", "content": question}]
        inputs = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.inference_mode():
            ids = model.generate(**inputs, do_sample=False, max_new_tokens=tokens)
        new = ids[0, inputs["input_ids"].shape[1] :]
        return tokenizer.decode(new, skip_special_tokens=True), len(new)

    yield answer


def metric(server: RunningServer, name: str, **labels: str) -> float:
    """The sum of a metric's samples that have these labels."""
    total = 0.0
    for line in server.client.get("/metrics").text.splitlines():
        if line.startswith(f"{name}{{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


@pytest.mark.parametrize("question", QUESTIONS)
def test_greedy_chat_is_what_the_library_says_streamed_and_not(
    client: OpenAI, server: RunningServer, smol: str, library: Any, question: str
) -> None:
    expected, tokens = library(question, 40)
    before = metric(server, "flexserv_generated_tokens_total", model=smol)
    ask: dict[str, Any] = {
        "model": smol,
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 40,
    }
    whole = client.chat.completions.create(**ask)
    assert whole.choices[0].message.content == expected
    assert whole.usage is not None and whole.usage.completion_tokens == tokens
    assert whole.model == smol
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == expected
    assert chunks[-1].usage == whole.usage
    after = metric(server, "flexserv_generated_tokens_total", model=smol)
    assert after - before == 2 * tokens


def test_the_capital_of_france_is_paris(client: OpenAI, smol: str) -> None:
    got = client.chat.completions.create(model=smol, messages=FRANCE, temperature=0)
    assert "Paris" in (got.choices[0].message.content or "")
    assert got.choices[0].finish_reason == "stop"


def test_a_request_without_a_model_gets_the_default_model(server: RunningServer, smol: str) -> None:
    got = server.client.post(
        "/v1/chat/completions", json={"messages": FRANCE, "temperature": 0, "max_tokens": 10}
    )
    assert got.status_code == 200
    assert got.json()["model"] == smol


def test_stop_text_is_in_neither_form_of_the_answer(client: OpenAI, smol: str) -> None:
    ask: dict[str, Any] = {"model": smol, "messages": FRANCE, "temperature": 0, "stop": [" Paris"]}
    whole = client.chat.completions.create(**ask)
    streamed = "".join(
        c.choices[0].delta.content or "" for c in client.chat.completions.create(**ask, stream=True)
    )
    assert whole.choices[0].message.content == streamed == "The capital of France is"
    assert whole.choices[0].finish_reason == "stop"


def test_temperature_samples_and_a_seed_repeats(client: OpenAI, smol: str) -> None:
    def ask(seed: int) -> str:
        got = client.chat.completions.create(
            model=smol, messages=FRANCE, temperature=1.5, seed=seed, max_tokens=16
        )
        return got.choices[0].message.content or ""

    first = ask(1)
    assert ask(1) == first
    assert {ask(2), ask(3)} != {first}


def test_the_token_limit_is_a_length_finish(client: OpenAI, smol: str) -> None:
    got = client.chat.completions.create(model=smol, messages=FRANCE, temperature=0, max_completion_tokens=3)
    assert got.choices[0].finish_reason == "length"
    assert got.usage is not None and got.usage.completion_tokens == 3


def test_the_generation_config_field_replaces_the_models_own(client: OpenAI, smol: str) -> None:
    config = {"max_new_tokens": 4, "do_sample": False, "repetition_penalty": 1.3}
    ask: dict[str, Any] = {"model": smol, "extra_body": {"generation_config": json.dumps(config)}}
    chat = client.chat.completions.create(messages=FRANCE, **ask)
    assert chat.usage is not None and chat.usage.completion_tokens == 4
    response = client.responses.create(input=FRANCE[0]["content"], **ask)
    assert response.output_text == chat.choices[0].message.content
    assert client.completions.create(prompt="The", **ask).choices[0].finish_reason == "length"


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(client: OpenAI, smol: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=smol, messages=[{"role": "user", "content": "a " * 9000}])
    assert "8192" in str(caught.value)
    assert caught.value.code == "context_length_exceeded"


def test_a_stream_ends_with_done(server: RunningServer, llama: str) -> None:
    body = {"model": llama, "messages": FRANCE, "stream": True, "max_tokens": 4}
    with server.client.stream("POST", "/v1/chat/completions", json=body) as got:
        assert got.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in got.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all(json.loads(line.removeprefix("data: "))["model"] == llama for line in lines[:-1])


def test_template_variables_reach_chat_and_responses(client: OpenAI, llama: str) -> None:
    def tokens(**extra: Any) -> int:
        """The prompt's length tells what the template wrote; both routes must agree."""
        got = client.chat.completions.create(model=llama, messages=FRANCE, max_tokens=1, extra_body=extra)
        same = client.responses.create(
            model=llama, input=FRANCE[0]["content"], max_output_tokens=1, extra_body=extra
        )
        assert got.usage is not None and same.usage is not None
        assert same.usage.input_tokens == got.usage.prompt_tokens
        return got.usage.prompt_tokens

    plain, thinking, not_thinking = tokens(), tokens(enable_thinking=True), tokens(enable_thinking=False)
    assert len({plain, thinking, not_thinking}) == 3
    assert tokens(chat_template_kwargs={"enable_thinking": True}) == thinking
    assert tokens(chat_template_kwargs={"enable_thinking": True}, enable_thinking=False) == not_thinking
    assert tokens(chat_template_kwargs={"enable_thinking": True}, enable_thinking=None) == thinking
    assert tokens(chat_template_kwargs={"persona": "a pirate"}) > plain
    assert tokens(chat_template_kwargs={"no_such_variable": 5, "persona": None}) == plain


def test_completions_continue_text_and_tokens_one_or_many(client: OpenAI) -> None:
    gpt2 = model_path("tiny-random-gpt2")
    ids = AutoTokenizer.from_pretrained(gpt2)("hello world")["input_ids"]
    one = client.completions.create(model=gpt2, prompt="hello world", max_tokens=6, temperature=0)
    many = client.completions.create(
        model=gpt2, prompt=["hello world", "the"], max_tokens=6, temperature=0, echo=True
    )
    tokens = client.completions.create(model=gpt2, prompt=ids, max_tokens=6, temperature=0)
    assert [choice.index for choice in many.choices] == [0, 1]
    assert many.choices[0].text == "hello world" + one.choices[0].text
    assert tokens.choices[0].text == one.choices[0].text
    streamed = client.completions.create(
        model=gpt2, prompt="hello world", max_tokens=6, temperature=0, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in streamed) == one.choices[0].text


def test_a_completion_is_what_the_library_says(client: OpenAI) -> None:
    gpt2 = model_path("tiny-random-gpt2")
    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    model = AutoModelForCausalLM.from_pretrained(gpt2, dtype="auto").eval()
    inputs = tokenizer("hello world", return_tensors="pt")
    ids = model.generate(**inputs, do_sample=False, max_new_tokens=12)[0, inputs["input_ids"].shape[1] :]
    got = client.completions.create(model=gpt2, prompt="hello world", max_tokens=12, temperature=0)
    assert got.choices[0].text == tokenizer.decode(ids, skip_special_tokens=True)


def test_responses_answer_whole_by_default_and_stream_in_order(client: OpenAI, smol: str) -> None:
    whole = client.responses.create(model=smol, input=FRANCE[0]["content"], temperature=0)
    assert "Paris" in whole.output_text
    assert whole.status == "completed"
    with client.responses.stream(model=smol, input=FRANCE[0]["content"], temperature=0) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == whole.output_text
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-1] == "response.completed"


def test_instructions_are_the_system_message(client: OpenAI, smol: str) -> None:
    ask: dict[str, Any] = {"model": smol, "temperature": 0}
    chat = client.chat.completions.create(
        messages=[{"role": "system", "content": "Answer in one word."}, *FRANCE], **ask
    )
    got = client.responses.create(
        input=[{"role": "user", "content": FRANCE[0]["content"]}], instructions="Answer in one word.", **ask
    )
    assert got.output_text == chat.choices[0].message.content


def test_a_picture_reaches_a_vision_model_and_no_text_model(client: OpenAI, llama: str) -> None:
    vision = model_path("tiny-random-vision")
    look: Any = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": picture_uri()}},
    ]
    ask: dict[str, Any] = {"max_tokens": 3, "temperature": 0}
    seen = client.chat.completions.create(model=vision, messages=[{"role": "user", "content": look}], **ask)
    blind = client.chat.completions.create(
        model=vision, messages=[{"role": "user", "content": "What is it?"}], **ask
    )
    assert seen.usage is not None and blind.usage is not None
    assert seen.usage.prompt_tokens > blind.usage.prompt_tokens
    with pytest.raises(openai.BadRequestError, match="text only"):
        client.chat.completions.create(model=llama, messages=[{"role": "user", "content": look}])
    for address in ("http://127.0.0.1:1/x.png", "file:///etc/hostname", "/etc/hostname"):
        look[1]["image_url"]["url"] = address
        with pytest.raises(openai.BadRequestError, match="data:image"):
            client.chat.completions.create(model=vision, messages=[{"role": "user", "content": look}])


def test_models_are_listed_and_retrieved(client: OpenAI, smol: str) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert listed[smol].status == "loaded"  # type: ignore[attr-defined]
    assert client.models.retrieve(smol).id == smol
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("no/such-model")


def test_an_unknown_model_is_a_404_also_for_a_stream(client: OpenAI) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as caught:
            client.chat.completions.create(model="no/such-model", messages=FRANCE, stream=stream)
        assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("content", "headers", "words"),
    [
        (b"{", {}, "JSON"),
        (b"", {}, "empty"),
        (b"[1]", {}, "object"),
        (b'{"messages": "\xff"}', {}, "UTF-8"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', {}, "UTF-8"),
        (b'{"a":' * 20000, {}, "nested"),
        (b"{}", {}, "messages"),
        (b"{}", {"content-type": "text/xml"}, "Content-Type"),
        (b'{"messages": [], "temperature": NaN}', {}, "temperature|messages"),
    ],
    ids=["cut", "empty", "list", "bytes", "surrogate", "deep", "missing", "type", "nan"],
)
def test_a_broken_body_is_a_400_in_openai_form(
    server: RunningServer, content: bytes, headers: dict[str, str], words: str
) -> None:
    for route in ("/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings"):
        refused = metric(server, "flexserv_request_duration_seconds_count", route=route, code="400")
        got = server.client.post(
            route, content=content, headers={"content-type": "application/json", **headers}
        )
        assert got.status_code == 400
        error = got.json()["error"]
        assert set(error) >= {"message", "type", "param", "code"}
        if route == "/v1/chat/completions":
            assert re.search(words, error["message"])
        counted = metric(server, "flexserv_request_duration_seconds_count", route=route, code="400")
        assert counted == refused + 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_ends_the_generation(server: RunningServer, smol: str, stream: bool) -> None:
    body = {"model": smol, "messages": FRANCE, "stream": stream, "max_tokens": 4000, "temperature": 1.9}
    body["logit_bias"] = {"2": -100, "0": -100}  # never ends by itself
    before = metric(server, "flexserv_generated_tokens_total", model=smol)
    with httpx.Client(base_url=server.base_url, timeout=30 if stream else 3) as leaving:
        if stream:
            with leaving.stream("POST", "/v1/chat/completions", json=body) as got:
                next(line for line in got.iter_lines() if "content" in line)
        else:
            with pytest.raises(httpx.ReadTimeout):
                leaving.post("/v1/chat/completions", json=body)

    def counted() -> float:
        return metric(server, "flexserv_generated_tokens_total", model=smol) - before

    assert eventually(counted, 30) < 1000
    idle = eventually(
        lambda: server.client.get("/v1/flexserv/health").json()["active_requests"] == 0, timeout=30
    )
    assert idle


def test_a_full_queue_is_429_with_retry_after_and_health_still_answers(
    server: RunningServer, smol: str
) -> None:
    body = {"model": smol, "messages": FRANCE, "max_tokens": 60, "temperature": 1.0}
    body["logit_bias"] = {"2": -100, "0": -100}  # the first one has to last until all six have asked
    start = threading.Barrier(6)

    def ask(_: int) -> httpx.Response:
        start.wait(60)
        return server.client.post("/v1/chat/completions", json=body, timeout=90)

    with ThreadPoolExecutor(6) as pool:
        asked = pool.map(ask, range(6))
        assert server.client.get("/health", timeout=5).status_code == 200
        answers = list(asked)
    codes = sorted(answer.status_code for answer in answers)
    assert codes == [200, 200, 200, 429, 429, 429]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert float(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "queue_full"
