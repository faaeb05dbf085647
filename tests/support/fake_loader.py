"""A loader whose loads a test holds and lets go, and a clock that it turns."""

import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.loader import OutOfMemory, Progress, Source
from hf_transformers_backend.model_settings import LoadSettings

PATIENCE_SECONDS = 20.0


class Weights:
    """Stands for the tensors: alive as long as somebody refers to it."""


@dataclass(eq=False)
class FakeModel:
    identity: ModelIdentity
    settings: LoadSettings
    executor: ThreadPoolExecutor
    bytes: int = 100
    devices: Mapping[str, int] = field(default_factory=lambda: {"cpu": 100})
    commit: str | None = None
    weights: Weights = field(default_factory=Weights)
    resources: ExitStack = field(default_factory=ExitStack)


class Gate:
    """Holds one model's load. A deaf load does not look whether it was aborted."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf
        self.reached = threading.Event()
        self.opened = threading.Event()

    def open(self) -> None:
        self.opened.set()

    def wait_until_reached(self) -> None:
        assert self.reached.wait(PATIENCE_SECONDS), "the load did not start"

    def pass_through(self, progress: Progress) -> None:
        self.reached.set()
        if self.deaf:
            assert self.opened.wait(PATIENCE_SECONDS), "nobody opened the gate"
            return
        for done in range(int(PATIENCE_SECONDS / 0.002)):
            progress(done, None)
            if self.opened.wait(0.002):
                return
        raise AssertionError("nobody opened the gate")


class FakeLoader:
    """Loads at once, unless a gate or an error is set for the id; remembers what it loaded, in order."""

    def __init__(self) -> None:
        self.fetch_gates: dict[str, Gate] = {}
        self.gates: dict[str, Gate] = {}
        self.errors: dict[str, Exception] = {}
        self.sizes: dict[str, int | None] = {}
        self.expected: dict[str, int] = {}
        self.devices: dict[str, str] = {}
        self.runs_out: dict[str, int] = {}
        """How many more loads of a model run out of memory."""
        self._loaded: list[tuple[str, weakref.ref[FakeModel]]] = []

    def last(self) -> FakeModel:
        """The model that was loaded last; it must still be alive."""
        model = self._loaded[-1][1]()
        assert model is not None, "the model is gone"
        return model

    def hold(self, model_id: str, *, deaf: bool = False) -> Gate:
        return self.gates.setdefault(model_id, Gate(deaf=deaf))

    def hold_download(self, model_id: str) -> Gate:
        return self.fetch_gates.setdefault(model_id, Gate())

    def fail(self, model_id: str, error: FlexServError | Exception) -> None:
        self.errors[model_id] = error

    def order(self) -> list[str]:
        return [model_id for model_id, _ in self._loaded]

    def expected_bytes(self, identity: ModelIdentity, settings: LoadSettings) -> int | None:
        return self.expected.get(identity.model_id)

    def fetch(self, identity: ModelIdentity, settings: LoadSettings, progress: Progress) -> Source:
        gate = self.fetch_gates.get(identity.model_id)
        if gate is not None:
            gate.pass_through(progress)
        return Source(Path("/nowhere"))

    def needed_bytes(self, identity: ModelIdentity, source: Source, settings: LoadSettings) -> int | None:
        return self.sizes.get(identity.model_id)

    def load(
        self,
        identity: ModelIdentity,
        source: Source,
        settings: LoadSettings,
        executor: ThreadPoolExecutor,
        progress: Progress,
    ) -> FakeModel:
        gate = self.gates.get(identity.model_id)
        if gate is not None:
            gate.pass_through(progress)
        if identity.model_id in self.errors:
            raise self.errors[identity.model_id]
        if self.runs_out.get(identity.model_id, 0) > 0:
            self.runs_out[identity.model_id] -= 1
            raise OutOfMemory("no memory on purpose")
        size = self.sizes.get(identity.model_id) or 100
        device = self.devices.get(identity.model_id, "cpu")
        model = FakeModel(identity, settings, executor, size, {device: size})
        # Weakly: a reference of ours would keep the weights that residency frees.
        self._loaded.append((identity.model_id, weakref.ref(model)))
        return model


class HandClock:
    """Starts at a round time and moves only when told."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
