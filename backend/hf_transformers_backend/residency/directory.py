"""Which model a name means and which models a mere request may load. Pure, guarded by residency's lock."""

from collections.abc import Callable, Collection, Iterable, Sequence

from hf_transformers_backend.errors import BadRequest, Forbidden, Unavailable
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.residency.declared import DeclaredList
from hf_transformers_backend.residency.names import check_name, parse_name, plain_path
from hf_transformers_backend.settings import Settings

LiveNames = Sequence[tuple[ModelIdentity, str | None]]
"""Identity and served name of what is resident or loading."""

NOT_SYNCED_RETRY_SECONDS = 5.0


class Directory:
    """Default models, the declared list, and the models that are not to be loaded again by themselves."""

    def __init__(self, settings: Settings, now: Callable[[], float]) -> None:
        self._policy = settings.on_demand
        self._now = now
        self._defaults: dict[Kind, ModelIdentity] = {}
        if settings.default_model is not None:
            self._defaults["serve"] = parse_name(settings.default_model, "serve", "--default-model")
        if settings.default_embedding_model is not None:
            self._defaults["embedding"] = parse_name(
                settings.default_embedding_model, "embedding", "--default-embedding-model"
            )
        self._forced: dict[Kind, bool] = {
            "serve": settings.force_default_model,
            "embedding": settings.force_default_embedding_model,
        }
        self.declared = DeclaredList()
        self.crashed: dict[ModelIdentity, None] = {}

    @classmethod
    def check(cls, settings: Settings) -> None:
        """Raise BadRequest if a default model cannot be one; the message names the flag."""
        cls(settings, lambda: 0.0)

    @property
    def defaults(self) -> tuple[ModelIdentity, ...]:
        return tuple(self._defaults.values())

    def default(self, kind: Kind) -> ModelIdentity | None:
        return self._defaults.get(kind)

    def heeded(self, name: str | None, kind: Kind) -> str | None:
        """The name of a request, or None where every request of that kind gets the default model."""
        return None if self._forced[kind] else name

    def quarantine(self, identities: Iterable[ModelIdentity]) -> None:
        self.crashed = dict.fromkeys(identities)

    def forgive(self, identity: ModelIdentity) -> None:
        self.crashed.pop(identity, None)

    def resolve(self, name: str | None, kind: Kind, live: LiveNames) -> ModelIdentity:
        """Served name first, then `id@revision`, then a plain id as the declared list means it."""
        if name is None:
            default = self._defaults.get(kind)
            if default is None:
                flag = "--default-model" if kind == "serve" else "--default-embedding-model"
                raise BadRequest(
                    f"'model' is required: this server has no default (it is set by {flag})", param="model"
                )
            return default
        check_name(name)
        served = self.served_as(name, kind, live)
        if served is not None:
            return served
        other: Kind = "embedding" if kind == "serve" else "serve"
        if self.served_as(name, other, live) is not None:
            what = (
                "an embedding model: use /v1/embeddings" if other == "embedding" else "not an embedding model"
            )
            raise BadRequest(f"'{name}' is {what}", param="model", code="wrong_kind")
        identity = parse_name(name, kind)
        if identity.revision is None:
            default = self._defaults.get(kind)
            if default is not None and default.model_id == identity.model_id:
                identity = default
            return self.declared.by_plain_id(identity.model_id, kind) or identity
        return identity

    def served_as(self, name: str, kind: Kind, live: LiveNames) -> ModelIdentity | None:
        """The model that bears `name` as its served name; the declared list has the say."""
        declared = self.declared.by_served_name(name, kind)
        if declared is not None:
            return declared
        return next((identity for identity, served in live if served == name and identity.kind == kind), None)

    def matches(
        self,
        identity: ModelIdentity,
        name: str | None,
        kind: Kind | None,
        revisions: Collection[str | None] | None,
        live: LiveNames,
    ) -> bool:
        """Whether an unload of `name` means `identity`; a bare id means all its kinds and, unless `revisions`
        says which (None in it is the default one), all its revisions."""
        if kind is not None and identity.kind != kind:
            return False
        if revisions is not None and identity.revision not in revisions:
            return False
        if name is None or plain_path(name) in (identity.model_id, str(identity)):
            return True
        return any(identity == known and name == served for known, served in live)

    def check_on_demand(self, identity: ModelIdentity, requested: str) -> None:
        """Raise unless a mere request may load `identity`."""
        if identity in self.crashed:
            raise Unavailable(
                f"'{requested}' is quarantined: its last load ended the server;"
                " it comes back when it is loaded by order",
                code="model_quarantined",
            )
        declared = self.declared.get(identity)
        if declared is not None and declared.blocked_until is not None:
            remaining = declared.blocked_until - self._now()
            if remaining > 0:
                raise Unavailable(
                    f"'{requested}' is blocked for another {remaining:.0f} s",
                    code="model_quarantined",
                    retry_after=remaining,
                )
        if self._policy == "any" or (self._policy == "declared" and identity in self.defaults):
            return
        if self._policy == "off":
            raise Forbidden(
                f"'{requested}' is not loaded, and requests may not load models here (--on-demand off); "
                "load it with POST /v1/flexserv/models/load",
                code="not_declared",
                param="model",
            )
        if self.declared.digest is None:
            raise Unavailable(
                f"'{requested}' is not loaded, and the list of models has not come yet; try again",
                code="not_synced",
                retry_after=NOT_SYNCED_RETRY_SECONDS,
            )
        if declared is None:
            raise Forbidden(
                f"'{requested}' is not one of this server's models; create a FlexServModel for it,"
                " or set --on-demand any",
                code="not_declared",
                param="model",
            )
