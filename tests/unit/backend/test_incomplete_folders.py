"""Model folders without what turns text, pictures or sound into the model's input are refused, not served."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hf_transformers_backend.errors import Unprocessable
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.loader import Source
from hf_transformers_backend.model_loader import ModelLoader
from hf_transformers_backend.model_settings import LoadSettings

from tests.support.models import model_path

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")


def load(folder: Path, kind: Kind) -> None:
    with ThreadPoolExecutor(1) as executor:
        source, settings = Source(folder), LoadSettings()
        ModelLoader("cpu").load(
            ModelIdentity(str(folder), kind), source, settings, executor, lambda done, total: None
        )


@pytest.mark.parametrize(
    ("name", "kind", "missing"),
    [
        ("tiny-random-llama", "serve", TOKENIZER),
        ("tiny-random-gpt2", "serve", TOKENIZER),
        ("tiny-random-vision", "serve", ("processor_config.json", "preprocessor_config.json")),
        ("tiny-random-vision", "serve", TOKENIZER),
        ("tiny-random-whisper", "serve", ("processor_config.json", "preprocessor_config.json")),
        ("tiny-random-whisper", "serve", TOKENIZER),
        ("all-MiniLM-L6-v2", "embedding", TOKENIZER),
    ],
)
def test_a_folder_without_a_tokenizer_or_processor_is_unprocessable(
    tmp_path: Path, name: str, kind: Kind, missing: tuple[str, ...]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_path(name), folder, symlinks=True, ignore=shutil.ignore_patterns(*missing))
    with pytest.raises(Unprocessable, match="no tokenizer or processor") as caught:
        load(folder, kind)
    assert caught.value.param == "model"


def test_a_damaged_tokenizer_is_as_good_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_path("tiny-random-llama"), folder)
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(Unprocessable, match="no tokenizer or processor"):
        load(folder, "serve")
