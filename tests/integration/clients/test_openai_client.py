"""OpenAI's own client library: its calls, its objects, its exceptions."""

import io
import math
import threading
from collections.abc import Iterator

import numpy as np
import openai
import pytest
import soundfile
from openai import OpenAI

from tests.integration.clients.conftest import ADMIN_TOKEN, QUESTION
from tests.support.eventually import eventually
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def client(api: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=api, api_key="unused", max_retries=0, timeout=60) as client:
        yield client


def messages(text: str = QUESTION) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_chat_is_answered(client: OpenAI, greedy_answer: str) -> None:
    answer = client.chat.completions.create(
        model="smollm2", messages=messages(), temperature=0, max_completion_tokens=16
    )
    assert answer.choices[0].message.content == greedy_answer
    assert (answer.model, answer.choices[0].message.role) == ("smollm2", "assistant")
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_streamed_chat_is_the_same_text_and_its_usage(client: OpenAI, greedy_answer: str) -> None:
    stream = client.chat.completions.create(
        model="smollm2",
        messages=messages(),
        temperature=0,
        max_tokens=16,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == greedy_answer
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_the_clients_own_stream_helper_understands_the_events(client: OpenAI, greedy_answer: str) -> None:
    with client.chat.completions.stream(
        model="smollm2", messages=messages(), temperature=0, max_tokens=16
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == greedy_answer


def test_completions_whole_and_streamed(client: OpenAI) -> None:
    whole = client.completions.create(
        model="smollm2", prompt=["The capital of France is", "One, two,"], temperature=0, max_tokens=4
    )
    assert [choice.index for choice in whole.choices] == [0, 1]
    stream = client.completions.create(
        model="smollm2", prompt="The capital of France is", temperature=0, max_tokens=4, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == whole.choices[0].text


def test_a_response_whole_and_streamed(client: OpenAI, greedy_answer: str) -> None:
    whole = client.responses.create(model="smollm2", input=QUESTION, temperature=0, max_output_tokens=16)
    assert whole.output_text == greedy_answer and whole.usage is not None
    with client.responses.stream(
        model="smollm2", input=QUESTION, temperature=0, max_output_tokens=16
    ) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.type for event in events][:2] == ["response.created", "response.in_progress"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert final.output_text == whole.output_text
    assert final.status == whole.status


def test_embeddings_come_as_the_client_asks_for_them(client: OpenAI) -> None:
    """Unless told otherwise it asks for base64 and decodes it."""
    texts = ["a cat", "a dog"]
    default = client.embeddings.create(model="minilm", input=texts)
    floats = client.embeddings.create(model="minilm", input=texts, encoding_format="float")
    for ours, plain in zip(default.data, floats.data, strict=True):
        assert math.isclose(math.hypot(*ours.embedding), 1, rel_tol=1e-5)
        assert np.allclose(ours.embedding, plain.embedding, atol=1e-6)
    assert len(client.embeddings.create(model="minilm", input="a", dimensions=64).data[0].embedding) == 64


def test_a_transcription_in_each_form(client: OpenAI) -> None:
    sound = io.BytesIO()
    soundfile.write(sound, np.zeros(8000), 16_000, format="WAV")
    file = ("silence.wav", sound.getvalue(), "audio/wav")
    answer = client.audio.transcriptions.create(model="whisper", file=file, language="en")
    verbose = client.audio.transcriptions.create(
        model="whisper", file=file, response_format="verbose_json", language="en"
    )
    assert math.isclose(verbose.duration, 0.5) and verbose.text == answer.text
    text = client.audio.transcriptions.create(
        model="whisper", file=file, response_format="text", language="en"
    )
    assert str(text) == f"{answer.text}\n"


def test_models_are_listed_and_retrieved(client: OpenAI) -> None:
    names = {model.id for model in client.models.list()}
    assert names >= {"smollm2", "minilm", "whisper"}
    model = client.models.retrieve("smollm2")
    assert (model.id, model.object, model.status) == ("smollm2", "model", "loaded")  # type: ignore[attr-defined]


def test_what_is_wrong_with_a_request_is_the_exception_that_the_client_has_for_it(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model="smollm2", messages=messages(), temperature=9)
    assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
    with pytest.raises(openai.BadRequestError) as suffix:
        client.completions.create(model="smollm2", prompt="a", suffix="b")
    assert suffix.value.param == "suffix"
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="org/absent", messages=messages())
    assert missing.value.code == "model_not_found" and "org/absent" in missing.value.message
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("org/absent")
    with pytest.raises(openai.UnprocessableEntityError) as wrong_kind:
        client.embeddings.create(model="/", input="a")
    assert wrong_kind.value.code == "unsupported_model"


def test_a_token_that_is_not_the_right_one_is_an_authentication_error(client: OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as refused:
        client.post("/flexserv/models/unload", cast_to=object, body={})
    assert refused.value.code == "invalid_api_key"
    allowed = client.with_options(api_key=ADMIN_TOKEN)
    assert allowed.post("/flexserv/synced", cast_to=object) == {"status": "ok"}


def test_one_request_too_many_is_a_rate_limit_error(client: OpenAI, server: RunningServer) -> None:
    def ask() -> None:
        client.chat.completions.create(model="smollm2", messages=messages(), max_tokens=4)

    def active() -> int:
        models = server.client.get("/v1/flexserv/models/loaded").json()["models"]
        return next(m["active_requests"] for m in models if m["served_name"] == "smollm2")

    with client.chat.completions.create(
        model="smollm2",
        messages=messages("Count to a million."),
        max_tokens=4000,
        stream=True,
        logit_bias={"0": -100, "2": -100},  # never ends by itself
    ) as running:
        next(running)
        waiting = threading.Thread(target=ask)
        waiting.start()
        eventually(lambda: active() == 2, 20)
        with pytest.raises(openai.RateLimitError) as refused:
            ask()
        assert refused.value.code == "queue_full"
        assert int(refused.value.response.headers["retry-after"]) >= 1
    waiting.join(60)
    assert not waiting.is_alive()
