"""How many weights a GGUF file holds, from its header alone.

The `gguf` package reads the whole vocabulary into objects first, which takes seconds.
"""

import math
import struct
from pathlib import Path
from typing import BinaryIO

MAGIC = b"GGUF"
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_TEXT, _ARRAY = 8, 9
_MOST_DIMENSIONS = 8
_MOST_ENTRIES = 1_000_000


def count_weights(file: Path) -> int:
    """Raises OSError, ValueError or struct.error for what is no GGUF file of version 2 or 3."""
    with file.open("rb") as stream:
        if stream.read(4) != MAGIC or _number(stream, "<I") not in (2, 3):
            raise ValueError("not a GGUF file of version 2 or 3")
        tensors, entries = _bounded(_number(stream, "<Q")), _bounded(_number(stream, "<Q"))
        for _ in range(entries):
            _skip_text(stream)
            _skip_value(stream, _number(stream, "<I"))
        return sum(_tensor_size(stream) for _ in range(tensors))


def _tensor_size(stream: BinaryIO) -> int:
    _skip_text(stream)
    dimensions = _number(stream, "<I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError("a tensor with too many dimensions")
    size = math.prod(_number(stream, "<Q") for _ in range(dimensions))
    stream.seek(4 + 8, 1)  # its type, and where it is
    return size


def _skip_value(stream: BinaryIO, kind: int) -> None:
    if kind == _TEXT:
        _skip_text(stream)
    elif kind == _ARRAY:
        kind, length = _number(stream, "<I"), _number(stream, "<Q")
        if kind in _SCALAR_BYTES:
            stream.seek(_SCALAR_BYTES[kind] * length, 1)
            return
        for _ in range(_bounded(length)):
            _skip_value(stream, kind)
    elif kind in _SCALAR_BYTES:
        stream.seek(_SCALAR_BYTES[kind], 1)
    else:
        raise ValueError(f"a value of the unknown type {kind}")


def _skip_text(stream: BinaryIO) -> None:
    stream.seek(_number(stream, "<Q"), 1)


def _number(stream: BinaryIO, form: str) -> int:
    value: int = struct.unpack(form, stream.read(struct.calcsize(form)))[0]
    return value


def _bounded(count: int) -> int:
    if count > _MOST_ENTRIES:
        raise ValueError("a header that is too large")
    return count
