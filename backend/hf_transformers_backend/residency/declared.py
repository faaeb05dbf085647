"""The operator's list: which models belong here, under which names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_transformers_backend.identity import Kind, ModelIdentity


@dataclass(frozen=True, slots=True)
class DeclaredModel:
    """One entry: `changes` holds the live and load-time settings that it names, `blocked_until` is epoch
    seconds.
    """

    identity: ModelIdentity
    changes: Mapping[str, Any] = field(default_factory=dict)
    blocked_until: float | None = None

    @property
    def served_name(self) -> str | None:
        return self.changes.get("served_name")

    @property
    def label(self) -> str:
        return self.served_name or self.identity.model_id


class DeclaredList:
    """The list as it was last sent. Where two entries want one name, the first has it."""

    def __init__(self, models: Iterable[DeclaredModel] = (), digest: str | None = None) -> None:
        self.models = tuple(models)
        self.digest = digest
        self._by_identity: dict[ModelIdentity, DeclaredModel] = {}
        self._by_served_name: dict[tuple[str, Kind], ModelIdentity] = {}
        self._by_plain_id: dict[tuple[str, Kind], ModelIdentity] = {}
        for model in self.models:
            identity = model.identity
            self._by_identity.setdefault(identity, model)
            self._by_plain_id.setdefault((identity.model_id, identity.kind), identity)
            if model.served_name is not None:
                self._by_served_name.setdefault((model.served_name, identity.kind), identity)

    def get(self, identity: ModelIdentity) -> DeclaredModel | None:
        return self._by_identity.get(identity)

    def by_served_name(self, name: str, kind: Kind) -> ModelIdentity | None:
        return self._by_served_name.get((name, kind))

    def by_plain_id(self, model_id: str, kind: Kind) -> ModelIdentity | None:
        """What the id without a revision means: the entry without one, else the first."""
        plain = ModelIdentity(model_id, kind)
        return plain if plain in self._by_identity else self._by_plain_id.get((model_id, kind))

    def labels(self) -> frozenset[str]:
        return frozenset(model.label for model in self.models)
