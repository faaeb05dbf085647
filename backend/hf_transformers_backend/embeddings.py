"""Sentence encoders: sentence-transformers behind the same residency as the generative models."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from hf_transformers_backend.errors import BadRequest, Unprocessable
from hf_transformers_backend.generation.long_text import beginning
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import Progress, Source
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.upstream.placement import bring_into_memory, bytes_per_device, resolve_device
from hf_transformers_backend.upstream.processing import check_tokenizer
from hf_transformers_backend.upstream.progress import progress_of_weights

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BATCH_SIZE = 32


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Unit vectors, float32 [n, d], in the order of the inputs, and the tokens that were read for them."""

    vectors: NDArray[np.float32]
    prompt_tokens: int


@dataclass(frozen=True, eq=False)
class Encoder:
    """An encoder in memory. `encode` blocks: run it on `executor`, the only thread that may use the model."""

    model: "SentenceTransformer"
    key: str
    executor: ThreadPoolExecutor
    bytes: int
    devices: Mapping[str, int]
    commit: str | None = None
    resources: ExitStack = field(default_factory=ExitStack)

    @property
    def weights(self) -> object:
        """The object whose end gives the memory back."""
        return self.model

    @property
    def dimension(self) -> int:
        """Length of the vectors that it makes."""
        return int(self.model.get_embedding_dimension() or 0)

    def encode(
        self, texts: Sequence[str] | Sequence[Sequence[int]], dimensions: int | None = None
    ) -> EncodedBatch:
        """Encode texts, or token ids of this model. Longer inputs are cut at what the model reads.

        `dimensions` shortens the vectors, which keep unit norm. Raises BadRequest for ids or dimensions that
        the model does not have.
        """
        if dimensions is not None and not 1 <= dimensions <= self.dimension:
            raise BadRequest(
                f"'dimensions' must be from 1 to {self.dimension} for this model", param="dimensions"
            )
        lengths = [len(text) for text in texts]
        # Like lengths side by side: padding is work.
        order = sorted(range(len(texts)), key=lengths.__getitem__, reverse=True)
        vectors: NDArray[np.float32] = np.zeros((len(texts), dimensions or self.dimension), dtype=np.float32)
        tokens = 0
        for start in range(0, len(order), BATCH_SIZE):
            chosen = order[start : start + BATCH_SIZE]
            features = self._features([texts[index] for index in chosen])
            tokens += int(features["attention_mask"].sum())
            vectors[chosen] = self._forward(features, dimensions)
        return EncodedBatch(vectors, tokens)

    def _features(self, batch: Sequence[str | Sequence[int]]) -> dict[str, Any]:
        tokenizer = self.model.tokenizer
        longest = self.model.get_max_seq_length() or None
        if all(isinstance(text, str) for text in batch):
            texts = [
                str(text) if longest is None else beginning(tokenizer, str(text), longest) for text in batch
            ]
            return cast(dict[str, Any], self.model.preprocess(texts))
        limit = len(tokenizer)
        rows = [list(cast(Sequence[int], row))[:longest] for row in batch]
        if any(not 0 <= token < limit for row in rows for token in row):
            raise BadRequest(
                f"a token id is outside of this model's vocabulary (0 to {limit - 1})", param="input"
            )
        return dict(tokenizer.pad({"input_ids": rows}, return_tensors="pt"))

    def _forward(self, features: dict[str, Any], dimensions: int | None) -> NDArray[np.float32]:
        device = self.model.device
        moved = {
            name: value.to(device) if hasattr(value, "to") else value for name, value in features.items()
        }
        with torch.inference_mode():
            vectors = self.model(moved)["sentence_embedding"].float()
            if dimensions is not None:
                vectors = vectors[:, :dimensions]
            unit = torch.nn.functional.normalize(vectors, dim=1)
        return cast(NDArray[np.float32], unit.cpu().numpy())


def load_encoder(
    identity: ModelIdentity,
    source: Source,
    settings: LoadSettings,
    device: str,
    executor: ThreadPoolExecutor,
    progress: Progress,
    key: str,
) -> Encoder:
    """Load an encoder from its folder. Raises Unprocessable for what sentence-transformers cannot load, and
    for what it would load although it was never made to encode.
    """
    from sentence_transformers import SentenceTransformer

    if source.gguf_file is not None:
        raise Unprocessable(f"{identity}: encoders are not loaded from GGUF files", param="kind")
    _refuse_generators(identity, source)
    options: dict[str, Any] = {}
    if settings.dtype != "auto":
        options["dtype"] = settings.dtype
    if settings.attn_implementation is not None:
        options["attn_implementation"] = settings.attn_implementation
    target = resolve_device(device)
    try:
        with progress_of_weights(progress):
            model = SentenceTransformer(
                str(source.path),
                device=None if target == "auto" else target,
                trust_remote_code=settings.trust_remote_code,
                local_files_only=True,
                model_kwargs=options,
            )
    except (ValueError, KeyError) as error:
        raise Unprocessable(
            f"{identity} cannot be loaded as an encoder ({type(error).__name__})", param="model"
        ) from None
    if not model.supports("text"):
        raise Unprocessable(f"{identity} does not encode text, so it is no encoder here", param="kind")
    check_tokenizer(identity, model.tokenizer)
    model.eval()
    bring_into_memory(model, progress)
    devices = bytes_per_device(model)
    return Encoder(
        model=model,
        key=key,
        executor=executor,
        bytes=sum(devices.values()),
        devices=devices,
        commit=source.commit,
    )


def _refuse_generators(identity: ModelIdentity, source: Source) -> None:
    """Of any model without a modules.json the library makes an encoder: the mean of its states."""
    from hf_transformers_backend.upstream.loading import GENERATIVE, SPEECH

    if (source.path / "modules.json").is_file():
        return
    try:
        named = json.loads((source.path / "config.json").read_text(encoding="utf-8")).get("architectures")
    except (OSError, ValueError, AttributeError):
        return  # broken files are the library's to report
    if named and all(name in GENERATIVE | SPEECH for name in named):
        raise Unprocessable(
            f"{identity} is a {named[0]}, which generates and has no modules.json that says how it encodes;"
            " for vectors ask an embedding model (a generative one is loaded with kind 'serve')",
            param="kind",
        )
