"""The encoder against sentence-transformers itself; the estimate of a size against the load; an abort."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hf_transformers_backend.checkpoint import needed_bytes
from hf_transformers_backend.embeddings import Encoder
from hf_transformers_backend.errors import BadRequest, Unprocessable
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import LoadAborted, Source
from hf_transformers_backend.model_loader import ModelLoader
from hf_transformers_backend.model_settings import LoadSettings
from sentence_transformers import SentenceTransformer

from tests.support.model_copies import encoder_of
from tests.support.models import model_path

TEXTS = [
    "The cat sits on the mat.",
    "",
    "A much longer sentence about " + "nothing in particular " * 80,
    "Paris",
] * 10


def ignore(done: int, total: int | None) -> None:
    pass


@pytest.fixture(scope="module")
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="module")
def encoder(executor: ThreadPoolExecutor) -> Encoder:
    path = model_path("all-MiniLM-L6-v2")
    identity = ModelIdentity(path, "embedding")
    loaded = ModelLoader("cpu").load(identity, Source(Path(path)), LoadSettings(), executor, ignore)
    assert isinstance(loaded, Encoder)
    return loaded


def test_vectors_are_those_of_sentence_transformers(encoder: Encoder) -> None:
    reference = SentenceTransformer(model_path("all-MiniLM-L6-v2"), device="cpu").encode(
        TEXTS, normalize_embeddings=True, show_progress_bar=False
    )
    batch = encoder.encode(TEXTS)
    assert batch.vectors.shape == (len(TEXTS), encoder.dimension) == (40, 384)
    assert batch.vectors.dtype == np.float32
    np.testing.assert_allclose(batch.vectors, reference, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(batch.vectors, axis=1), 1, atol=1e-5)


def test_token_ids_mean_the_same_as_their_text(encoder: Encoder) -> None:
    ids = encoder.model.tokenizer("The cat sits on the mat.")["input_ids"]
    from_ids, from_text = encoder.encode([ids]), encoder.encode(["The cat sits on the mat."])
    np.testing.assert_allclose(from_ids.vectors, from_text.vectors, atol=1e-5)
    assert from_ids.prompt_tokens == from_text.prompt_tokens == len(ids)


def test_a_text_far_longer_than_the_model_reads_is_cut_before_it_is_tokenized(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "A cat, and nothing in particular. " * 100_000
    expected = encoder.model.encode([text], normalize_embeddings=True, show_progress_bar=False)
    sizes, preprocess = [], encoder.model.preprocess

    def watched(texts: list[str]) -> object:
        sizes.extend(map(len, texts))
        return preprocess(texts)

    monkeypatch.setattr(encoder.model, "preprocess", watched)
    batch = encoder.encode([text, "Paris"])
    np.testing.assert_allclose(batch.vectors[:1], expected, atol=1e-5)
    assert batch.prompt_tokens == encoder.model.get_max_seq_length() + 3
    assert len(sizes) == 2 and max(sizes) < 20_000


def test_shorter_vectors_keep_their_direction_and_unit_norm(encoder: Encoder) -> None:
    full, short = encoder.encode(["Paris"]).vectors, encoder.encode(["Paris"], dimensions=64).vectors
    assert short.shape == (1, 64)
    np.testing.assert_allclose(short[0], full[0, :64] / np.linalg.norm(full[0, :64]), atol=1e-5)


@pytest.mark.parametrize("dimensions", [0, 385])
def test_dimensions_that_the_model_has_not_are_refused(encoder: Encoder, dimensions: int) -> None:
    with pytest.raises(BadRequest, match="from 1 to 384"):
        encoder.encode(["x"], dimensions)


@pytest.mark.parametrize("token", [-1, 30522])
def test_token_ids_outside_of_the_vocabulary_are_refused(encoder: Encoder, token: int) -> None:
    with pytest.raises(BadRequest, match="vocabulary"):
        encoder.encode([[101, token, 102]])


@pytest.mark.parametrize("name", ["SmolLM2-135M-Instruct", "tiny-random-llama", "tiny-random-whisper"])
@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16"])
def test_the_estimate_is_what_the_weights_take(name: str, dtype: str, executor: ThreadPoolExecutor) -> None:
    source, settings = Source(Path(model_path(name))), LoadSettings(dtype=dtype)
    estimate = needed_bytes(source, settings)
    loaded = ModelLoader("cpu").load(ModelIdentity(str(source.path)), source, settings, executor, ignore)
    assert estimate is not None
    # Buffers that no file holds (rotary tables) come on top.
    assert loaded.bytes * 0.97 - 100_000 <= estimate <= loaded.bytes * 1.03


def test_a_load_ends_where_its_progress_says_so(executor: ThreadPoolExecutor) -> None:
    path = model_path("SmolLM2-135M-Instruct")
    reports: list[tuple[int, int | None]] = []

    def abort_at_ten(done: int, total: int | None) -> None:
        reports.append((done, total))
        if done >= 10:
            raise LoadAborted

    with pytest.raises(LoadAborted):
        ModelLoader("cpu").load(
            ModelIdentity(path), Source(Path(path)), LoadSettings(), executor, abort_at_ten
        )
    assert reports[-1][0] == 10
    assert (reports[-1][1] or 0) > 200


@pytest.mark.parametrize("model", ["tiny-random-llama", "tiny-random-whisper"])
def test_a_model_that_only_generates_is_no_encoder(executor: ThreadPoolExecutor, model: str) -> None:
    path = Path(model_path(model))
    with pytest.raises(Unprocessable, match="embedding model") as caught:
        ModelLoader("cpu").load(
            ModelIdentity(str(path), "embedding"), Source(path), LoadSettings(), executor, ignore
        )
    assert (caught.value.code, caught.value.param) == ("unsupported_model", "kind")


def test_a_causal_model_that_was_made_to_encode_is_an_encoder(
    executor: ThreadPoolExecutor, tmp_path: Path
) -> None:
    identity = ModelIdentity(encoder_of("tiny-random-llama", tmp_path), "embedding")
    width = json.loads((tmp_path / "config.json").read_text())["hidden_size"]
    loaded = ModelLoader("cpu").load(identity, Source(tmp_path), LoadSettings(), executor, ignore)
    assert isinstance(loaded, Encoder)
    assert loaded.encode(["a text"]).vectors.shape == (1, width)
