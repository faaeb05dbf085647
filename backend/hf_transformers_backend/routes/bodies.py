"""The bodies of the management routes: strict, so that a typo never means "all"."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator
from starlette.requests import Request

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.template import RESERVED_TEMPLATE_NAMES
from hf_transformers_backend.generation.validation import validated
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.model_settings import LiveSettings, LoadSettings
from hf_transformers_backend.residency import DeclaredModel
from hf_transformers_backend.residency.names import check_name, parse_name
from hf_transformers_backend.routes.json_request import understood
from hf_transformers_backend.schemas.base import Items, Named
from hf_transformers_backend.settings import LONGEST_SECONDS, DTypeName, Quantization

Seconds = Annotated[float, Field(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False)]
MAX_PRIORITY = 1_000_000
Name = Annotated[str, Field(min_length=1, max_length=512)]

SETTING_NAMES = frozenset({*LiveSettings.__dataclass_fields__, *LoadSettings.__dataclass_fields__})


def _without_defaults(schema: dict[str, Any]) -> None:
    """A client that fills in a default would change a setting that it does not mean to change."""
    for name in schema.get("properties", {}).keys() & (SETTING_NAMES | {"revision"}):
        schema["properties"][name].pop("default", None)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra=_without_defaults)


class _ModelSettings(_Strict):
    owner: str | None = Field(
        None, max_length=1024, description="Who wants the model here; null takes that back."
    )
    pin: bool = Field(False, description="Never idle, never a victim while others can go.")
    priority: int = Field(
        0, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Among pinned models the lower goes first."
    )
    idle_timeout_seconds: Seconds | None = Field(
        None, description="null = the server's --model-timeout, 0 = never."
    )
    served_name: Name | None = Field(None, description="A second name for requests; also the metric label.")
    chat_template_kwargs: Named[Any] | None = Field(
        default_factory=dict, description="Defaults for the chat template; null takes them back."
    )
    dtype: DTypeName | None = Field(None, description="null = the server's --dtype.")
    quantization: Quantization | Literal["none"] | None = Field(
        None, description="null = the server's --quantization, none = none."
    )
    attn_implementation: Name | None = Field(None, description="null = the server's --attn-implementation.")
    trust_remote_code: bool | None = Field(None, description="null = the server's --trust-remote-code.")

    @field_validator("chat_template_kwargs")
    @classmethod
    def _no_reserved_names(cls, value: dict[str, Any] | None) -> dict[str, Any]:
        value = value or {}
        reserved = sorted(RESERVED_TEMPLATE_NAMES & set(value))
        if reserved:
            raise ValueError(f"'{reserved[0]}' belongs to apply_chat_template itself and cannot be set")
        return value

    @field_validator("served_name")
    @classmethod
    def _can_be_a_name(cls, value: str | None) -> str | None:
        if value is not None:
            _checked(value)
        return value

    def changes(self) -> dict[str, Any]:
        """The settings that the body names; what it leaves out is left as it is."""
        return {name: getattr(self, name) for name in self.model_fields_set & SETTING_NAMES}


class _Named(_ModelSettings):
    model_id: Name = Field(description="Hub id, id@revision, or absolute path.")
    kind: Kind = Field(
        "serve", description="serve = generates text or transcripts, embedding = sentence encoder."
    )
    revision: Name | None = Field(None, description="Branch, tag or commit on the hub.")

    def identity(self) -> ModelIdentity:
        """Raises BadRequest for what can be no model."""
        return join_revision(parse_name(self.model_id, self.kind, "model_id"), self.revision)


class LoadBody(_Named):
    """POST /v1/flexserv/models/load"""

    wait: bool | Seconds = Field(
        False,
        description="Answer when the model is in: true = wait up to --load-wait, or a number of seconds.",
    )


class UnloadBody(_Strict):
    """POST /v1/flexserv/models/unload; without model_id, or with "*", everything goes."""

    model_id: Name | None = None
    revision: Name | None = Field(None, description="Only this one; null = the default one, absent = all.")
    kind: Kind | None = None
    oom_triggered: bool = Field(False, description="The caller saw memory run short; recorded as the reason.")

    def revisions(self) -> frozenset[str | None] | None:
        """The revision that the body names, null being the default one; None = no word of it: all of them."""
        return frozenset({self.revision}) if "revision" in self.model_fields_set else None


class DeclaredEntry(_Named):
    """One model of the operator's list."""

    blocked_until: AwareDatetime | None = Field(None, description="Requests do not load the model before.")

    @field_validator("blocked_until", mode="before")
    @classmethod
    def _from_text(cls, value: object) -> object:
        # Strict mode takes a datetime only; JSON has none.
        return datetime.fromisoformat(value) if isinstance(value, str) else value

    def to_declared(self) -> DeclaredModel:
        blocked = self.blocked_until
        return DeclaredModel(
            self.identity(), self.changes(), None if blocked is None else blocked.timestamp()
        )


class LoadModelBody(BaseModel):
    """POST /load_model"""

    model: Name = Field(description="As in a request: id, id@revision, or served name.")


class EmptyBody(_Strict):
    """What takes no parameters: nothing that is sent can be meant."""


class DeclaredBody(_Strict):
    """POST /v1/flexserv/declared: the whole list."""

    models: Items[DeclaredEntry]
    hash: Name = Field(description="The sender's name for this list; the inventory repeats it.")

    def to_declared(self) -> list[DeclaredModel]:
        """Raises BadRequest naming the entry."""
        declared: list[DeclaredModel] = []
        for index, entry in enumerate(self.models):
            try:
                declared.append(entry.to_declared())
            except BadRequest as error:
                place = f"models[{index}]."
                raise BadRequest(f"{place}{error.message}", param=f"{place}{error.param}") from None
        return declared


B = TypeVar("B", bound=_Strict)


async def read_body(request: Request, schema: type[B]) -> B:
    """The body of a mutation. Raises BadRequest; what takes no parameters may come without a body."""
    return await understood(
        request,
        lambda value: validated(schema, value, block_unexpected=True),
        empty={} if schema is EmptyBody else None,
    )


def join_revision(identity: ModelIdentity, revision: str | None) -> ModelIdentity:
    """`id@a` and a field `revision` must not disagree."""
    if revision is None or revision == identity.revision:
        return identity
    if identity.revision is not None:
        raise BadRequest(
            f"revision: is {revision}, and the model_id names {identity.revision}; send one of them",
            param="revision",
        )
    if identity.model_id.startswith("/"):
        raise BadRequest("revision: makes no sense for a path; leave it out", param="revision")
    return ModelIdentity(identity.model_id, identity.kind, revision)


def _checked(name: str) -> None:
    try:
        check_name(name, "served_name")
    except BadRequest as error:
        raise ValueError(error.message.removeprefix("served_name: ")) from None
