"""A generative model in memory, with the one thread that may run torch work on it."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transformers.cli.serving.utils import Modality

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["Modality", "ServedModel"]


@dataclass(frozen=True, eq=False)
class ServedModel:
    """What a load gives to the generation code. Freed by residency alone.

    `key` is unique per load. All torch work for the model runs on `executor`, which has one thread. What is
    pushed on `resources` is closed before the weights are dropped. `bytes` counts parameters and buffers,
    `devices` the same per torch device name.
    """

    model: "PreTrainedModel"
    processor: Any
    modality: Modality
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
