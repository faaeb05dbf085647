"""The inventory as JSON: all that the operator needs in one GET. Times are RFC 3339 in UTC."""

from datetime import UTC, datetime
from typing import Any

from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.lifecycle import Lifecycle
from hf_transformers_backend.residency import (
    EvictionView,
    FailedView,
    LoadingView,
    Residency,
    ResidentView,
)


def inventory(residency: Residency, lifecycle: Lifecycle) -> dict[str, Any]:
    """The body of GET /v1/flexserv/models/loaded."""
    now = residency.snapshot()
    return {
        "instance_id": lifecycle.instance_id,
        "pod_uid": lifecycle.pod_uid,
        "synced": now.synced,
        "declared_hash": now.declared_hash,
        "models": [resident(model) for model in now.models],
        "unloading": [resident(model) for model in now.unloading],
        "loading": [loading(job) for job in now.loading],
        "failed": [_failed(failure) for failure in now.failed],
        "crashed_loading": [identity(crashed) for crashed in residency.crashed_loading],
        "last_evictions": [_eviction(eviction) for eviction in now.last_evictions],
        "pressure": None if now.pressure is None else now.pressure.to_dict(),
    }


def identity(model: ModelIdentity) -> dict[str, Any]:
    return {"model_id": model.model_id, "kind": model.kind, "revision": model.revision}


def resident(model: ResidentView) -> dict[str, Any]:
    return {
        **identity(model.identity),
        "commit": model.commit,
        "served_name": model.served_name,
        "owner": model.owner,
        "default": model.default,
        "pinned": model.pinned,
        "priority": model.priority,
        "bytes": model.bytes,
        "settings": model.settings.to_dict(),
        "requested_settings": dict(model.asked),
        "loaded_at": timestamp(model.loaded_at),
        "last_used_at": timestamp(model.last_used_at),
        "expires_at": None if model.expires_at is None else timestamp(model.expires_at),
        "idle_timeout_seconds": model.idle_timeout_seconds,
        "active_requests": model.active_requests,
    }


def loading(job: LoadingView) -> dict[str, Any]:
    return {
        **identity(job.identity),
        "owner": job.owner,
        "load_id": job.load_id,
        "stage": job.stage,
        "done": job.done,
        "total": job.total,
        "started_at": None if job.started_at is None else timestamp(job.started_at),
        "stage_since": timestamp(job.stage_since),
    }


def timestamp(epoch_seconds: float) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return (
        datetime.fromtimestamp(epoch_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _failed(failure: FailedView) -> dict[str, Any]:
    return {
        **identity(failure.identity),
        "load_id": failure.load_id,
        "code": failure.code,
        "message": failure.message,
        "needed_bytes": failure.needed_bytes,
        "available_bytes": failure.available_bytes,
        "at": timestamp(failure.at),
    }


def _eviction(eviction: EvictionView) -> dict[str, Any]:
    return {
        **identity(eviction.identity),
        "reason": eviction.reason,
        "seq": eviction.seq,
        "at": timestamp(eviction.at),
        "count": eviction.count,
    }
