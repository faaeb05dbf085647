"""Models that bring code of their own: run when it is trusted, refused when it is not."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hf_transformers_backend.errors import Unprocessable
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Source
from hf_transformers_backend.model_loader import ModelLoader
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.upstream.served_model import ServedModel

from tests.support.own_code import write_model_with_code

CODE = """
from transformers import LlamaForCausalLM


class OwnForCausalLM(LlamaForCausalLM):
    says = "of its own"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """tiny-random-llama under a class that transformers does not have."""
    # The library copies such code to a folder of its own and imports it from there.
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", sys.path[:])
    return Path(write_model_with_code(tmp_path / "model", "OwnForCausalLM", CODE))


def load(folder: Path, *, trusted: bool) -> ServedModel:
    identity = ModelIdentity(str(folder), "serve")
    with ThreadPoolExecutor(1) as executor:
        loaded = ModelLoader("cpu").load(
            identity,
            Source(folder),
            LoadSettings(trust_remote_code=trusted),
            executor,
            lambda done, total: None,
        )
    assert isinstance(loaded, ServedModel)
    return loaded


def test_trusted_code_is_what_runs(folder: Path) -> None:
    model = load(folder, trusted=True).model

    assert type(model).__name__ == "OwnForCausalLM"
    assert model.says == "of its own"


def test_code_that_is_not_trusted_is_refused(folder: Path) -> None:
    with pytest.raises(Unprocessable, match="its own code") as caught:
        load(folder, trusted=False)
    assert caught.value.param == "trust_remote_code"
