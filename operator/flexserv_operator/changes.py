"""What changed in a status, and whether that is worth a write and an Event. Pure; times are seconds of the
epoch."""

from collections.abc import Mapping
from typing import Any

MESSAGE_PERIOD_S = 10
"""How often a status is written for the sake of a message alone, such as the percentage of a load."""


def worth_writing(old: Mapping[str, Any], new: Mapping[str, Any], last_write: float, now: float) -> bool:
    """A change of substance at once, a change of words only every MESSAGE_PERIOD_S, else never."""
    if old == new:
        return False
    return _without_messages(old) != _without_messages(new) or now - last_write >= MESSAGE_PERIOD_S


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What turns `old` into `new`: lists whole, null for what is gone (one level down, for objects, as
    well)."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        was = old.get(key)
        if value == was:
            continue
        patch[key] = merge_patch(was, value) if isinstance(value, dict) and isinstance(was, dict) else value
    return patch


def transition(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """The Event (type, reason, message) of a change of phase or of Ready's reason; None if neither
    changed."""
    if (old.get("phase"), _ready(old).get("reason")) == (new["phase"], _ready(new)["reason"]):
        return None
    ready = _ready(new)
    kind = "Warning" if new["phase"] in ("Failed", "Degraded") else "Normal"
    return (
        kind,
        ready["reason"],
        f"{new['phase']}, {new['ready']} pods: {ready['message'] or ready['reason']}",
    )


def _ready(status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions: list[Mapping[str, Any]] = status.get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "Ready"), {})


def _without_messages(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_messages(inner) for key, inner in value.items() if key != "message"}
    if isinstance(value, list):
        return [_without_messages(inner) for inner in value]
    return value
