"""How much memory a checkpoint will take, read from its files without loading them."""

import json
import math
import struct
from pathlib import Path

from hf_transformers_backend.loader import Source
from hf_transformers_backend.model_settings import LoadSettings

MAX_HEADER_BYTES = 100_000_000
DTYPE_BYTES = {"float64": 8.0, "float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
STORED_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
QUANTIZED_BYTES = {"bnb-4bit": 0.6, "bnb-8bit": 1.1}
"""Bytes per weight with its share of scales and of the layers that stay as they are."""


def needed_bytes(source: Source, settings: LoadSettings) -> int | None:
    """Bytes of the weights once loaded; None where the files do not tell (GGUF)."""
    if source.gguf_file is not None:
        return None
    files = _weight_files(source.path)
    if files is None:
        pickled = sum(file.stat().st_size for file in source.path.glob("pytorch_model*.bin"))
        return pickled or None
    try:
        return sum(_safetensors_bytes(file, settings) for file in files)
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        # A broken file is the loader's to report.
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
        if tensor["dtype"] not in STORED_BYTES:
            total += end - begin
            continue
        per_weight = QUANTIZED_BYTES.get(settings.quantization or "")
        if per_weight is None:
            per_weight = DTYPE_BYTES.get(settings.dtype, STORED_BYTES[tensor["dtype"]])
        total += math.prod(tensor["shape"]) * per_weight
    return int(total)
