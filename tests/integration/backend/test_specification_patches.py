"""What the specification patches around upstream, one test for each of its five patches.

Most of the bugs are gone from upstream; the behavior is required all the same.
"""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
from openai import OpenAI
from PIL import Image

from tests.support.models import model_path
from tests.support.picture_server import picture
from tests.support.server import RunningServer

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def server(odd_server: RunningServer) -> RunningServer:
    return odd_server


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=90) as made:
        yield made


def noise(form: str, rate: int, channels: int) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    samples = np.random.default_rng(0).normal(0, 0.1, (rate, channels))
    soundfile.write(buffer, samples, rate, format=form)
    return f"a.{form.lower()}", buffer.getvalue()


def test_patch_1_the_routes_take_their_bodies_and_no_parameter_in_the_query(
    server: RunningServer, client: OpenAI
) -> None:
    llama, whisper = model_path("tiny-random-llama"), model_path("tiny-random-whisper")
    assert client.chat.completions.create(model=llama, messages=HELLO, max_tokens=1).choices
    assert client.responses.create(model=llama, input="hello", max_output_tokens=1).output
    assert client.audio.transcriptions.create(model=whisper, file=noise("WAV", 16000, 1)).text
    document = server.client.get("/openapi.json")
    assert document.status_code == 200
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/audio/transcriptions"):
        described = document.json()["paths"][path]["post"]
        assert described.get("parameters", []) == []
        assert described["requestBody"]["content"]


def test_patch_2_keys_that_nobody_expects_are_trimmed(server: RunningServer) -> None:
    llama, encoder = model_path("tiny-random-llama"), model_path("all-MiniLM-L6-v2")
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"model": llama, "messages": [{**HELLO[0], "zz": 1}], "max_tokens": 1},
        "/v1/responses": {"model": llama, "input": [{**HELLO[0], "zz": 1}], "max_output_tokens": 1},
        "/v1/completions": {"model": llama, "prompt": "hello", "max_tokens": 1},
        "/v1/embeddings": {"model": encoder, "input": "hello"},
    }
    for path, body in bodies.items():
        got = server.client.post(path, json={**body, "zz": {"deep": [1]}, "top_k": 5, "min_p": 0.1})
        assert got.status_code == 200, got.text


def test_patch_3_no_request_with_an_image_goes_on_from_another_ones_cache(client: OpenAI) -> None:
    """The text and the number of tokens are the same each time; only what is seen differs."""
    from transformers import AutoProcessor, LlavaForConditionalGeneration

    vision = model_path("tiny-random-vision")
    processor = AutoProcessor.from_pretrained(vision)
    model = LlavaForConditionalGeneration.from_pretrained(vision).eval()

    def expected(data: bytes) -> str:
        chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]
        text = processor.apply_chat_template(chat, add_generation_prompt=True)
        image = Image.open(io.BytesIO(data))
        inputs = processor(text=[text], images=[image], return_tensors="pt", add_special_tokens=False)
        ids = model.generate(**inputs, do_sample=False, max_new_tokens=12)
        return str(processor.decode(ids[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))

    def seen(data: bytes) -> str:
        uri = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        parts: list[Any] = [
            {"type": "image_url", "image_url": {"url": uri}},
            {"type": "text", "text": "What is it?"},
        ]
        got = client.chat.completions.create(
            model=vision, messages=[{"role": "user", "content": parts}], max_tokens=12, temperature=0
        )
        return got.choices[0].message.content or ""

    pictures = [picture("red"), picture("blue"), picture("red"), picture("green")]
    answers = [seen(data) for data in pictures]
    assert answers == [expected(data) for data in pictures]
    assert len(set(answers)) == 3


@pytest.mark.parametrize(
    ("form", "rate", "channels"), [("WAV", 44100, 2), ("MP3", 48000, 2), ("OGG", 8000, 1)]
)
def test_patch_4_sound_is_read_by_soundfile_whatever_else_is_broken(
    server: RunningServer, client: OpenAI, form: str, rate: int, channels: int
) -> None:
    """The server's torchaudio and librosa do not import."""
    whisper = model_path("tiny-random-whisper")
    got = client.audio.transcriptions.create(
        model=whisper, file=noise(form, rate, channels), response_format="verbose_json"
    )
    assert got.text and abs(got.duration - 1) < 0.2
    assert "torchaudio is installed but does not work here" in server.log()
    with pytest.raises(openai.BadRequestError, match="not a sound file"):
        client.audio.transcriptions.create(model=whisper, file=("a.wav", Path(__file__).read_bytes()))


@pytest.mark.parametrize("stream", [False, True])
def test_patch_5_the_second_turn_of_a_response_is_answered_like_that_of_a_chat(
    client: OpenAI, stream: bool
) -> None:
    llama = model_path("tiny-random-llama")

    def answer(turns: list[Any]) -> str:
        ask: dict[str, Any] = {
            "model": llama,
            "input": turns,
            "max_output_tokens": 8,
            "temperature": 0,
            "instructions": "Answer in one word.",
        }
        if not stream:
            return client.responses.create(**ask).output_text
        *_, last = client.responses.create(**ask, stream=True)
        assert last.type in ("response.completed", "response.incomplete")
        return str(last.response.output_text)

    first = answer(HELLO)
    assert first
    turns = [*HELLO, {"role": "assistant", "content": first}, {"role": "user", "content": "and then?"}]
    chat = client.chat.completions.create(
        model=llama,
        messages=[{"role": "system", "content": "Answer in one word."}, *turns],
        max_tokens=8,
        temperature=0,
    )
    assert answer(turns) == (chat.choices[0].message.content or "")
