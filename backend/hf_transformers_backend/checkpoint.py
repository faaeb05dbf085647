"""How much memory a checkpoint will take, read from its files without loading them."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_transformers_backend.gguf_header import count_weights
from hf_transformers_backend.loader import Source
from hf_transformers_backend.model_settings import LoadSettings

MAX_HEADER_BYTES = 100_000_000
DTYPE_BYTES = {"float64": 8.0, "float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
QUANTIZED_BYTES = {"bnb-4bit": 0.6, "bnb-8bit": 1.1}
"""Bytes per weight with its share of scales and of the layers that stay as they are."""


def needed_bytes(source: Source, settings: LoadSettings) -> int | None:
    """Bytes of the weights once loaded; None where the files do not tell."""
    if source.gguf_file is not None:
        return _gguf_bytes(source.path / source.gguf_file, settings)
    files = _weight_files(source.path)
    if files is None:
        pickled = sum(file.stat().st_size for file in source.path.glob("pytorch_model*.bin"))
        return pickled or None
    try:
        return sum(_safetensors_bytes(file, settings) for file in files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        # A broken file is the loader's to report.
        return None


def pool_bytes(source: Source, settings: LoadSettings, tokens: int) -> int:
    """What keys and values of so many tokens take, at most; 0 where the configuration does not tell."""
    try:
        config = json.loads((source.path / "config.json").read_text(encoding="utf-8"))
        text = {**config, **config.get("text_config", {})}
        layers = _first_of(text, "num_hidden_layers", "n_layer")
        heads = _first_of(text, "num_attention_heads", "n_head")
        size = text.get("head_dim") or _first_of(text, "hidden_size", "n_embd") // heads
        stored = text.get("dtype") or text.get("torch_dtype") or "float32"
        value_bytes = DTYPE_BYTES.get(settings.dtype, DTYPE_BYTES.get(stored, DTYPE_BYTES["float32"]))
        return int(tokens * layers * 2 * (text.get("num_key_value_heads") or heads) * size * value_bytes)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return 0


def _first_of(config: dict[str, Any], *names: str) -> int:
    return int(config[next((name for name in names if name in config), names[0])])


def _gguf_bytes(file: Path, settings: LoadSettings) -> int | None:
    """Weights are unpacked when they are loaded, to float32 if nothing else is asked for."""
    try:
        return int(count_weights(file) * DTYPE_BYTES.get(settings.dtype, DTYPE_BYTES["float32"]))
    except (OSError, ValueError, OverflowError, RecursionError, struct.error):
        return None


def _weight_files(folder: Path) -> list[Path] | None:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError):
            return None
        return [folder / name for name in sorted(names)]
    return sorted(folder.glob("model*.safetensors")) or None


def _safetensors_bytes(file: Path, settings: LoadSettings) -> int:
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > MAX_HEADER_BYTES:
            raise ValueError("not a safetensors header")
        header = json.loads(stream.read(length))
    total = 0.0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        if tensor["dtype"] in STORED_BYTES:
            total += math.prod(tensor["shape"]) * _bytes_per_weight(tensor["dtype"], settings)
        else:
            total += end - begin
    return int(total)


def weights_bytes(parameters: Mapping[str, int], settings: LoadSettings) -> int:
    """Bytes, once loaded, of so many weights of each stored type, as safetensors calls the types."""
    return int(sum(count * _bytes_per_weight(stored, settings) for stored, count in parameters.items()))


def _bytes_per_weight(stored: str, settings: LoadSettings) -> float:
    """Types that are not cast, such as integers, count a byte."""
    if stored not in STORED_BYTES:
        return 1.0
    quantized = QUANTIZED_BYTES.get(settings.quantization or "")
    return DTYPE_BYTES.get(settings.dtype, STORED_BYTES[stored]) if quantized is None else quantized
