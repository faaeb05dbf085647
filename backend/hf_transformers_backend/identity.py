"""What a model is called: by which residency, routes, metrics and the operator mean one model."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["serve", "embedding"]


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """One model: its id (hub id or absolute path, without `@`), its kind, and the revision as asked (None =
    the default).
    """

    model_id: str
    kind: Kind = "serve"
    revision: str | None = None

    def __str__(self) -> str:
        return self.model_id if self.revision is None else f"{self.model_id}@{self.revision}"
