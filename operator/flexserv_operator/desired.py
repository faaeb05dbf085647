"""What should be: FlexServModels read into values, and what they claim of one backend. Pure."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from flexserv_operator.inventory import Identity, Kind
from flexserv_operator.quarantine import Quarantine

LOAD_TIME = {
    "dtype": "dtype",
    "quantization": "quantization",
    "attn_implementation": "attnImplementation",
    "trust_remote_code": "trustRemoteCode",
}
"""The backend's names of the load-time settings, and those of the FlexServModel."""


@dataclass(frozen=True)
class Model:
    """One FlexServModel. Timeouts are seconds; `created` is RFC 3339, as the API server writes it."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    identity: Identity
    backend: str | None = None
    served_name: str | None = None
    pinned: bool = True
    priority: int = 0
    idle_timeout: int | None = None
    load_timeout: int = 1800
    load_settings: Mapping[str, Any] = field(default_factory=dict)
    """What a change of needs a new load for, by the backend's names; set ones only."""
    chat_template_kwargs: Mapping[str, Any] | None = None

    @property
    def owner(self) -> str:
        """How the backend remembers whose a model is."""
        return f"{self.namespace}/{self.name}#{self.uid}"


@dataclass(frozen=True)
class Claim:
    """What all FlexServModels together want of one model."""

    identity: Identity
    owner: str
    generation: int
    served_name: str | None
    pinned: bool
    priority: int
    idle_timeout: int | None
    load_timeout: int
    load_settings: Mapping[str, Any]
    chat_template_kwargs: Mapping[str, Any] | None
    claimants: tuple[str, ...]
    """The uids of the merged FlexServModels, oldest first."""

    @property
    def load_key(self) -> str:
        """Changes when a new try is worth it at once: somebody edited the oldest claimant."""
        return f"{self.owner}:{self.generation}:{json.dumps(self.load_settings, sort_keys=True)}"

    def request(self) -> dict[str, Any]:
        """The claim in the backend's words: the body of POST models/load, and an entry of the declared list.

        All settings are always in it, so that one that was removed from the FlexServModel goes back to its
        default, which for a load-time setting is the backend's own.
        """
        return {
            "model_id": self.identity.model_id,
            "kind": self.identity.kind,
            "revision": self.identity.revision,
            "owner": self.owner,
            "served_name": self.served_name,
            "pin": self.pinned,
            "priority": self.priority,
            "idle_timeout_seconds": self.idle_timeout,
            "chat_template_kwargs": dict(self.chat_template_kwargs or {}),
            **{name: self.load_settings.get(name) for name in LOAD_TIME},
        }


@dataclass(frozen=True)
class Desired:
    """Everything that one backend should hold."""

    namespace: str
    models: Mapping[str, Model]
    """The FlexServModels of this backend, by uid."""
    foreign: frozenset[str]
    """The uids of FlexServModels of this namespace that are another operator's."""
    claims: tuple[Claim, ...]
    """Oldest first: the first one of an id says what the plain id means."""
    conflicts: Mapping[str, str]
    """Why a FlexServModel does not take part, by uid."""
    quarantines: Mapping[Identity, Quarantine] = field(default_factory=dict)

    @property
    def claimed(self) -> frozenset[Identity]:
        """Models that some FlexServModel names, also one in conflict: none of these is garbage."""
        return frozenset(model.identity for model in self.models.values())

    def blocked(self, identity: Identity, now: float) -> Quarantine | None:
        """The model's record, while it may not be loaded."""
        record = self.quarantines.get(identity)
        return record if record is not None and record.until > now else None

    def declaration(self, now: float, without: Collection[Identity] = ()) -> dict[str, Any]:
        """The body of POST declared. It changes when a quarantine begins or ends, not as time goes by.

        `without` names models that are left out.
        """
        entries = []
        for claim in self.claims:
            if claim.identity in without:
                continue
            entry = claim.request()
            record = self.blocked(claim.identity, now)
            if record is not None:
                entry["blocked_until"] = record.until_time
            entries.append(entry)
        canonical = json.dumps(entries, sort_keys=True, separators=(",", ":"))
        return {"models": entries, "hash": hashlib.sha256(canonical.encode()).hexdigest()}


def read_model(body: Mapping[str, Any]) -> Model:
    """The value of a FlexServModel as the API server has it (its schema has checked it and set its
    defaults)."""
    meta, spec = body["metadata"], body["spec"]
    kind: Kind = "embedding" if spec.get("kind") == "Embedding" else "serve"
    return Model(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        generation=meta["generation"],
        created=meta["creationTimestamp"],
        identity=Identity(kind, spec["model"], spec.get("revision")),
        backend=(spec.get("backendRef") or {}).get("name"),
        served_name=spec.get("servedName"),
        pinned=spec.get("residency", "Pinned") == "Pinned",
        priority=spec.get("priority", 0),
        idle_timeout=spec.get("idleTimeoutSeconds"),
        load_timeout=spec.get("loadTimeoutSeconds", 1800),
        load_settings={name: spec[key] for name, key in LOAD_TIME.items() if spec.get(key) is not None},
        chat_template_kwargs=spec.get("chatTemplateKwargs"),
    )
