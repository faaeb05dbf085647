"""What residency knows, for those who only look: names and their meaning, and what is there now."""

import threading
from collections.abc import Callable, Sequence

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.residency.catalog import catalog
from hf_transformers_backend.residency.shelf import Shelf
from hf_transformers_backend.residency.views import CatalogEntry, ResidencySnapshot
from hf_transformers_backend.settings import Settings


class Outlook:
    """Changes nothing. `lock` is residency's; `cached_models` lists the ids and times of what is on disk."""

    def __init__(
        self,
        lock: threading.Lock,
        shelf: Shelf,
        settings: Settings,
        cached_models: Callable[[], Sequence[tuple[str, int]]],
    ) -> None:
        self._lock = lock
        self._shelf = shelf
        self._settings = settings
        self._cached_models = cached_models

    @property
    def defaults(self) -> tuple[ModelIdentity, ...]:
        """The models that --default-model and --default-embedding-model name."""
        return self._shelf.directory.defaults

    def default(self, kind: Kind) -> ModelIdentity | None:
        """The model that answers requests which name none."""
        return self._shelf.directory.default(kind)

    @property
    def crashed_loading(self) -> tuple[ModelIdentity, ...]:
        """Models whose load ended a former process, until they are loaded by order."""
        with self._lock:
            return tuple(self._shelf.directory.crashed)

    def snapshot(self) -> ResidencySnapshot:
        """One consistent look at everything."""
        with self._lock:
            return self._shelf.snapshot()

    def catalog(self) -> list[CatalogEntry]:
        """What a client may name. Reads the disk: not for the event loop."""
        with self._lock:
            now, declared = self._shelf.snapshot(), self._shelf.directory.declared
        names = [*map(str, self.defaults), *(model.label for model in declared.models)]
        return catalog(now, names, self._cached_models() if self._settings.on_demand == "any" else ())

    def resolve(self, name: str | None, kind: Kind = "serve") -> ModelIdentity:
        """What a request means by `name`; None means the default model. Raises BadRequest."""
        with self._lock:
            return self._shelf.resolve(name, kind)

    def meaning(self, name: str, kind: Kind) -> ModelIdentity | None:
        """Like `resolve`, with None for a name that can mean nothing of this kind."""
        try:
            return self.resolve(name, kind)
        except BadRequest:
            return None

    def served_as(self, name: str, kind: Kind) -> ModelIdentity | None:
        """The model that bears `name` as its served name."""
        with self._lock:
            return self._shelf.served_as(name, kind)
