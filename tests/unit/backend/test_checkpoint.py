"""How much memory weights will take, by how they are stored and what is asked for."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from hf_transformers_backend.checkpoint import needed_bytes, weights_bytes
from hf_transformers_backend.loader import Source
from hf_transformers_backend.model_settings import LoadSettings


def write_safetensors(file: Path, tensors: Mapping[str, tuple[str, list[int], int]]) -> None:
    """Only the header: nobody may read further."""
    place, header = 0, {"__metadata__": {"format": "pt"}}
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + size]}  # type: ignore[dict-item]
        place += size
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1000 * 4 + 500 * 2 + 10),
        ({"dtype": "float32"}, 1500 * 4 + 10),
        ({"dtype": "bfloat16"}, 1500 * 2 + 10),
        ({"dtype": "float64"}, 1500 * 8 + 10),
        ({"quantization": "bnb-4bit"}, 1500 * 0.6 + 10),
        ({"quantization": "bnb-8bit", "dtype": "bfloat16"}, 1500 * 1.1 + 10),
    ],
    ids=lambda value: str(value),
)
def test_weights_are_counted_as_they_will_be_in_memory(
    tmp_path: Path, settings: dict[str, str], expected: float
) -> None:
    asked = LoadSettings(**settings)  # type: ignore[arg-type]
    write_safetensors(
        tmp_path / "model.safetensors",
        {"a": ("F32", [10, 100], 4000), "b": ("BF16", [500], 1000), "ids": ("U8", [10], 10)},
    )
    assert needed_bytes(Source(tmp_path), asked) == int(expected)
    assert weights_bytes({"F32": 1000, "BF16": 500, "U8": 10}, asked) == int(expected)


def test_the_files_that_an_index_names_are_counted_and_no_others(tmp_path: Path) -> None:
    for name in ("model-1.safetensors", "model-2.safetensors", "model-old.safetensors"):
        write_safetensors(tmp_path / name, {"a": ("F16", [100], 200)})
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert needed_bytes(Source(tmp_path), LoadSettings()) == 400


def test_pickled_weights_are_as_large_as_their_files(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 77)
    assert needed_bytes(Source(tmp_path), LoadSettings()) == 77


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 16, struct.pack("<Q", 5) + b"[1,2]"], ids=["empty", "huge", "no table"]
)
def test_a_broken_file_tells_nothing_and_is_the_loaders_to_report(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert needed_bytes(Source(tmp_path), LoadSettings()) is None


def test_a_folder_without_weights_tells_nothing(tmp_path: Path) -> None:
    assert needed_bytes(Source(tmp_path), LoadSettings()) is None
