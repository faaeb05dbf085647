"""A generative model in memory, with the one thread that may run torch work on it."""

from collections import Counter
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
    pushed on `resources` is closed before the weights are dropped. `weights_on` has the bytes of parameters
    and buffers per torch device name, `beside` those of what the model holds beside them, such as a pool.
    """

    model: "PreTrainedModel"
    processor: Any
    modality: Modality
    key: str
    executor: ThreadPoolExecutor
    weights_on: Mapping[str, int]
    commit: str | None = None
    resources: ExitStack = field(default_factory=ExitStack)
    beside: dict[str, int] = field(default_factory=dict)

    @property
    def weights(self) -> object:
        """The object whose end gives the memory back."""
        return self.model

    @property
    def devices(self) -> Mapping[str, int]:
        """All bytes that go with the model, per device."""
        return Counter(self.weights_on) + Counter(self.beside)

    @property
    def bytes(self) -> int:
        """All bytes that go with the model."""
        return sum(self.devices.values())
