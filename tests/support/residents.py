"""Tiny builders for what residency shows of itself."""

from collections.abc import Mapping
from typing import Any

from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.residency.views import LoadTimes, ResidencySnapshot, ResidentView


def resident(
    model_id: str,
    size: int = 0,
    *,
    kind: Kind = "serve",
    revision: str | None = None,
    served_name: str | None = None,
    pinned: bool = False,
    priority: int = 0,
    last_used_at: float = 0.0,
    active: int = 0,
    devices: Mapping[str, int] | None = None,
) -> ResidentView:
    """A model of `size` bytes on the CPU, or as `devices` says."""
    return ResidentView(
        identity=ModelIdentity(model_id, kind, revision),
        label=served_name or model_id,
        served_name=served_name,
        owner=None,
        default=False,
        pinned=pinned,
        priority=priority,
        bytes=size,
        devices={"cpu": size} if devices is None else devices,
        commit=None,
        settings=LoadSettings(),
        asked={},
        loaded_at=0.0,
        last_used_at=last_used_at,
        expires_at=None,
        idle_timeout_seconds=0.0,
        active_requests=active,
    )


def snapshot(*models: ResidentView, **changes: Any) -> ResidencySnapshot:
    """These models and nothing else, but for `changes`."""
    fields: dict[str, Any] = {
        "models": models,
        "unloading": (),
        "loading": (),
        "failed": (),
        "last_evictions": (),
        "evictions": {},
        "loads": {},
        "load_times": LoadTimes(),
        "declared_labels": frozenset(),
        "declared_hash": None,
        "synced": False,
        "pressure": None,
    }
    return ResidencySnapshot(**fields | changes)
