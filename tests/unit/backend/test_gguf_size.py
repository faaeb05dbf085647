"""The memory that a GGUF file will take, read from its header before it is loaded."""

import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter
from hf_transformers_backend.checkpoint import needed_bytes
from hf_transformers_backend.gguf_header import count_weights
from hf_transformers_backend.loader import Source
from hf_transformers_backend.model_settings import LoadSettings

from tests.support.models import model_path

FILE = "tiny.gguf"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A file by the library's own writer, with every type of metadata."""
    writer = GGUFWriter(tmp_path / FILE, "llama")
    writer.add_context_length(128)
    writer.add_bool("a.bool", True)
    writer.add_float64("a.double", 1.5)
    writer.add_array("a.texts", ["é", "", "longer text"])
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_tensor("one", np.zeros((4, 8), dtype=np.float32))
    writer.add_tensor("two", np.zeros((2, 3, 5), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path


@pytest.mark.parametrize(("dtype", "size"), [("auto", 4), ("float32", 4), ("bfloat16", 2), ("float64", 8)])
def test_weights_count_as_they_are_unpacked(written: Path, dtype: str, size: int) -> None:
    assert count_weights(written / FILE) == 4 * 8 + 2 * 3 * 5
    settings = LoadSettings(dtype=dtype)
    assert needed_bytes(Source(written, FILE), settings) == size * (4 * 8 + 2 * 3 * 5)


def test_a_real_file_takes_what_its_model_has_weights() -> None:
    folder = Path(model_path("SmolLM2-135M-Instruct-GGUF"))
    (file,) = folder.glob("*.gguf")
    assert needed_bytes(Source(folder, file.name), LoadSettings()) == 4 * 134_515_008


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"GGML" + data[4:],
        lambda data: data[:4] + struct.pack("<I", 9) + data[8:],
        lambda data: data[:100],
        lambda data: data[:8] + b"\xff" * 16 + data[24:],
    ],
    ids=["empty", "another format", "another version", "cut", "nonsense"],
)
def test_a_damaged_file_tells_nothing_and_is_left_to_the_loader(written: Path, damage: object) -> None:
    file = written / FILE
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert needed_bytes(Source(written, FILE), LoadSettings()) is None
