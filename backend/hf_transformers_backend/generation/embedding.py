"""Understand an embeddings body, and answer it."""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_transformers_backend.generation.validation import validated
from hf_transformers_backend.schemas.media import EmbeddingsRequest


@dataclass(frozen=True, slots=True)
class EmbeddingsAsked:
    """Texts or token lists to encode, in order."""

    model: str | None
    texts: list[str] | list[list[int]]
    dimensions: int | None
    base64: bool


def understand_embeddings(body: Any, *, block_unexpected: bool = False) -> EmbeddingsAsked:
    """Raises BadRequest naming the field."""
    asked = validated(EmbeddingsRequest, body, block_unexpected=block_unexpected)
    given: Any = asked.input
    if isinstance(given, str) or isinstance(given[0], int):
        given = [given]
    return EmbeddingsAsked(asked.model, given, asked.dimensions, asked.encoding_format == "base64")


def embeddings_answer(
    model: str, vectors: npt.NDArray[np.float32], prompt_tokens: int, *, as_base64: bool
) -> dict[str, Any]:
    """The list object, in the order of the input; base64 is of little-endian float32."""
    return {
        "object": "list",
        "model": model,
        "data": [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector.astype("<f4").tobytes()).decode()
                if as_base64
                else vector.tolist(),
            }
            for index, vector in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens},
    }
