"""OpenAI's own client against the real server: embeddings and transcriptions."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import soundfile
from openai import OpenAI

from tests.support.models import model_path
from tests.support.server import RunningServer

TEXTS = ["a cat", "The capital of France is Paris, and it has been for a long time.", "été 😀", "x " * 600]


@pytest.fixture(scope="module")
def minilm() -> str:
    return model_path("all-MiniLM-L6-v2")


@pytest.fixture(scope="module")
def whisper() -> str:
    return model_path("tiny-random-whisper")


@pytest.fixture(scope="module")
def server(minilm: str) -> Iterator[RunningServer]:
    flags = ["--default-embedding-model", minilm, "--device", "cpu", "--block-on-unexpected-fields"]
    with RunningServer(*flags) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0, timeout=90) as made:
        yield made


@pytest.fixture(scope="module")
def encoder(minilm: str) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(minilm, device="cpu", local_files_only=True)


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_are_those_of_the_library_in_order_and_of_unit_norm(
    client: OpenAI, minilm: str, encoder: Any, encoding: Any
) -> None:
    got = client.embeddings.create(model=minilm, input=TEXTS, encoding_format=encoding)
    vectors = np.array(
        [
            np.frombuffer(__import__("base64").b64decode(item.embedding), dtype="<f4")  # type: ignore[arg-type]
            if isinstance(item.embedding, str)
            else item.embedding
            for item in got.data
        ]
    )
    assert vectors.shape == (4, 384)
    assert [item.index for item in got.data] == [0, 1, 2, 3]
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors, encoder.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
    assert got.model == minilm
    limits = [min(len(encoder.tokenizer(text)["input_ids"]), encoder.get_max_seq_length()) for text in TEXTS]
    assert got.usage.prompt_tokens == got.usage.total_tokens == sum(limits)


def test_the_default_embedding_model_answers_and_token_ids_mean_the_same(
    server: RunningServer, encoder: Any
) -> None:
    ids = encoder.tokenizer("a cat")["input_ids"]
    bodies: list[Any] = ["a cat", ["a cat"], ids, [ids]]
    answers = [server.client.post("/v1/embeddings", json={"input": body}).json() for body in bodies]
    vectors = [answer["data"][0]["embedding"] for answer in answers]
    assert all(np.allclose(vector, vectors[0], atol=1e-5) for vector in vectors)


def test_shorter_vectors_keep_unit_norm(client: OpenAI, minilm: str) -> None:
    got = client.embeddings.create(model=minilm, input="a cat", dimensions=64)
    assert len(got.data[0].embedding) == 64
    assert abs(np.linalg.norm(got.data[0].embedding) - 1) < 1e-5
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model=minilm, input="a cat", dimensions=1000)


def test_several_encoders_are_resident_and_answer_by_their_names(
    server: RunningServer, client: OpenAI, minilm: str, tmp_path: Path
) -> None:
    other, bare = tmp_path / "other-encoder", tmp_path / "bare-encoder"
    other.symlink_to(minilm)
    bare.mkdir()
    for file in Path(minilm).iterdir():
        if file.is_file() and file.name != "modules.json":
            (bare / file.name).symlink_to(file)
    first = client.embeddings.create(model=minilm, input="a cat")
    second = client.embeddings.create(model=str(other), input="a cat")
    pooled = client.embeddings.create(model=str(bare), input="a cat")
    assert first.data[0].embedding == second.data[0].embedding
    assert (first.model, second.model, pooled.model) == (minilm, str(other), str(bare))
    assert len(pooled.data[0].embedding) == 384
    models = server.client.get("/v1/flexserv/models/loaded").json()["models"]
    encoders = {model["model_id"] for model in models if model["kind"] == "embedding"}
    assert encoders >= {minilm, str(other), str(bare)}
    with pytest.raises(openai.UnprocessableEntityError, match="generates"):
        client.embeddings.create(model=model_path("tiny-random-llama"), input="a cat")


@pytest.mark.parametrize("given", ["", [], [""], [10**7]])
def test_embeddings_of_nothing_are_refused(client: OpenAI, minilm: str, given: Any) -> None:
    with pytest.raises(openai.BadRequestError):
        client.embeddings.create(model=minilm, input=given)


def sound(form: str, rate: int = 22050, channels: int = 2, seconds: float = 1.0) -> io.BytesIO:
    noise = np.random.default_rng(0).normal(0, 0.1, (int(rate * seconds), channels))
    buffer = io.BytesIO()
    soundfile.write(buffer, noise, rate, format=form)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize("form", ["wav", "flac", "ogg", "mp3"])
def test_every_sound_format_is_transcribed(client: OpenAI, whisper: str, form: str) -> None:
    got = client.audio.transcriptions.create(model=whisper, file=(f"a.{form}", sound(form.upper())))
    assert isinstance(got.text, str) and got.text
    verbose = client.audio.transcriptions.create(
        model=whisper, file=(f"a.{form}", sound(form.upper())), response_format="verbose_json"
    )
    assert abs(verbose.duration - 1.0) < 0.2
    assert verbose.text == got.text


def test_a_transcript_is_what_the_library_says(client: OpenAI, whisper: str) -> None:
    from transformers import WhisperForConditionalGeneration, WhisperProcessor

    processor = WhisperProcessor.from_pretrained(whisper)
    model = WhisperForConditionalGeneration.from_pretrained(whisper, dtype="auto").eval()
    samples, _ = soundfile.read(sound("WAV", 16000, 1), dtype="float32")
    features = processor(samples, sampling_rate=16000, return_tensors="pt").input_features
    ids = model.generate(features, language="de", task="transcribe")
    expected = processor.decode(ids[0], skip_special_tokens=True).strip()
    got = client.audio.transcriptions.create(
        model=whisper, file=("a.wav", sound("WAV", 16000, 1)), language="de", response_format="text"
    )
    assert str(got).strip() == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"response_format": "srt"}, "response_format"),
        ({"language": "zz"}, "language"),
        ({"timestamp_granularities": ["word"]}, "timestamp_granularities"),
        ({"stream": True}, "stream"),
        ({"extra_body": {"zz": "1"}}, "zz"),
    ],
)
def test_what_cannot_be_transcribed_as_asked_is_a_400(
    client: OpenAI, whisper: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        client.audio.transcriptions.create(model=whisper, file=("a.wav", sound("WAV")), **fields)


def test_a_prompt_that_the_model_cannot_read_is_a_400_and_is_not_logged(
    server: RunningServer, client: OpenAI, whisper: str
) -> None:
    prompt = "SECRET <|endoftext|> x"
    with pytest.raises(openai.BadRequestError) as caught:
        client.audio.transcriptions.create(model=whisper, file=("a.wav", sound("WAV")), prompt=prompt)
    assert caught.value.param == "prompt"
    assert "SECRET" not in server.log() and "Traceback" not in server.log()


def test_a_prompt_is_read(client: OpenAI, whisper: str) -> None:
    ask: dict[str, Any] = {"model": whisper, "file": ("a.wav", sound("WAV", 16000, 1)), "language": "de"}
    plain = client.audio.transcriptions.create(**ask).text
    assert client.audio.transcriptions.create(**ask, prompt="w w w w").text != plain


def test_of_a_prompt_beyond_what_the_model_reads_the_end_is_read(client: OpenAI, whisper: str) -> None:
    ask: dict[str, Any] = {"model": whisper, "file": ("a.wav", sound("WAV", 16000, 1)), "language": "de"}
    texts = {client.audio.transcriptions.create(**ask, prompt="w " * count).text for count in (3000, 200_000)}
    assert len(texts) == 1
    assert client.audio.transcriptions.create(**ask, prompt="w" * 500_000).text


def test_what_is_no_sound_or_no_form_is_a_400(server: RunningServer, client: OpenAI, whisper: str) -> None:
    with pytest.raises(openai.BadRequestError, match="sound"):
        client.audio.transcriptions.create(model=whisper, file=("a.wav", b"no sound"))
    assert server.client.post("/v1/audio/transcriptions", json={"model": whisper}).status_code == 400
    missing = server.client.post("/v1/audio/transcriptions", data={"model": whisper}, files={"other": b"x"})
    assert missing.status_code == 400
    assert missing.json()["error"]["param"] == "file"


def test_models_of_another_kind_are_refused(client: OpenAI, whisper: str) -> None:
    llama = model_path("tiny-random-llama")
    with pytest.raises(openai.BadRequestError, match="transcribe"):
        client.audio.transcriptions.create(model=llama, file=("a.wav", sound("WAV")))
    with pytest.raises(openai.BadRequestError, match="transcribes"):
        client.chat.completions.create(model=whisper, messages=[{"role": "user", "content": "hi"}])


def test_unknown_fields_are_refused_when_the_server_says_so(client: OpenAI) -> None:
    llama = model_path("tiny-random-llama")
    with pytest.raises(openai.BadRequestError, match="zz"):
        client.chat.completions.create(
            model=llama, messages=[{"role": "user", "content": "hi"}], extra_body={"zz": 1}
        )
