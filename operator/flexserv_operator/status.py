"""The status of a FlexServModel, from what it is on each pod. Pure; `now` is in seconds of the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flexserv_operator.backoff import LASTING
from flexserv_operator.desired import Claim, Model
from flexserv_operator.quarantine import Quarantine
from flexserv_operator.replica import Replica

MAX_REPLICAS = 20
MAX_MESSAGE_CHARS = 1024
MESSAGE_PERIOD_S = 10
"""How often a status is written for the sake of a message alone, such as the percentage of a load."""

_TROUBLE = ("Failed", "Evicted", "Unreachable", "Loading", "Pending", "Standby", "Loaded")
"""States, the one that needs attention most first."""


@dataclass(frozen=True)
class Summary:
    """Phase, and the reason and message of the condition Ready."""

    phase: str
    ready: bool
    reason: str
    message: str


def build(
    model: Model,
    before: Mapping[str, Any],
    claim: Claim | None,
    service: str,
    replicas: Mapping[str, Replica],
    now: float,
    *,
    problem: tuple[str, str] | None = None,
    quarantine: Quarantine | None = None,
) -> dict[str, Any]:
    """The whole status, given the one `before`. `replicas` is by pod name; `problem` (reason, message) is
    what keeps it off all pods."""
    pinned = claim.pinned if claim else model.pinned
    summary = _blocked(problem, bool(replicas)) if problem else summarize(pinned, replicas)
    resident = sum(replica.resident for replica in replicas.values())
    status: dict[str, Any] = {
        "backend": service,
        "phase": summary.phase,
        "ready": f"{resident}/{len(replicas)}",
        "servedName": (claim.served_name if claim else model.served_name) or model.identity.model_id,
        "observedGeneration": model.generation,
        "conditions": _conditions(model, before, summary, resident, now),
        "replicas": _replicas(before.get("replicas") or [], replicas, now),
    }
    commits = sorted(replica.commit for replica in replicas.values() if replica.commit)
    if commits:
        status["commit"] = commits[0]
    eviction = _last_eviction(replicas) or before.get("lastEviction")
    if eviction:
        status["lastEviction"] = eviction
    if quarantine:
        status["quarantine"] = quarantine.status()
    return status


def summarize(pinned: bool, replicas: Mapping[str, Replica]) -> Summary:
    """One phase and reason for all pods."""
    if not replicas:
        return Summary("Pending", False, "NoBackends", "the backend's Service selects no running pod")
    states = [replica.state for replica in replicas.values()]
    total = len(states)
    if pinned and states.count("Loaded") == total:
        return Summary("Loaded", True, "Loaded", f"loaded on {_pods(total)}")
    if not pinned and all(state in ("Loaded", "Standby", "Loading") for state in states):
        loaded = states.count("Loaded")
        if loaded:
            return Summary("Loaded", True, "Loaded", f"loaded on {loaded} of {_pods(total)}")
        if "Loading" not in states:
            return Summary("Standby", True, "Standby", "the next request loads it")
        worst = _worst(replicas, "Loading")
        return Summary("Loading", True, worst.reason, worst.message)
    phase = _phase(pinned, states)
    worst = _worst(replicas, "Loading") if phase == "Loading" else _worst(replicas)
    return Summary(phase, False, worst.reason, worst.message)


def _phase(pinned: bool, states: Sequence[str]) -> str:
    """The phase while the intent does not hold."""
    if "Loading" in states or "Pending" in states:
        return "Loading"
    if "Loaded" in states:
        return "Degraded" if pinned else "Loaded"
    if "Failed" in states:
        return "Failed"
    if "Evicted" in states:
        return "Degraded"
    return "Standby" if "Standby" in states else "Pending"


def _worst(replicas: Mapping[str, Replica], state: str | None = None) -> Summary:
    """Reason and message of the replica that needs attention most, or of one in `state`."""
    in_state = [name for name in sorted(replicas) if replicas[name].state == state]
    name = (
        in_state[0]
        if in_state
        else min(replicas, key=lambda name: (_TROUBLE.index(replicas[name].state), name))
    )
    replica = replicas[name]
    message = f"{name}: {replica.message or replica.state}" if len(replicas) > 1 else replica.message
    return Summary("", False, replica.reason, message)


def _blocked(problem: tuple[str, str], pods: bool) -> Summary:
    reason, message = problem
    return Summary("Failed" if reason == "Conflict" else "Pending", False, reason, message)


def _conditions(
    model: Model, before: Mapping[str, Any], summary: Summary, resident: int, now: float
) -> list[dict[str, Any]]:
    """The whole list; a condition keeps its lastTransitionTime while its status stays."""
    stalled = not summary.ready and (
        summary.reason in LASTING or summary.reason in ("Conflict", "BackendNotFound")
    )
    working = not summary.ready and not stalled
    available = (resident > 0, "Resident" if resident else "NotResident", f"in memory on {_pods(resident)}")
    wanted = {
        "Ready": (summary.ready, summary.reason, summary.message),
        "Available": available,
        "Reconciling": (
            working,
            summary.reason if working else "Settled",
            summary.message if working else "",
        ),
        "Stalled": (stalled, summary.reason if stalled else "NotStalled", summary.message if stalled else ""),
    }
    known = {condition.get("type"): condition for condition in before.get("conditions") or []}
    conditions = []
    for kind, (holds, reason, message) in wanted.items():
        value, last = str(holds), known.get(kind) or {}
        conditions.append(
            {
                "type": kind,
                "status": value,
                "observedGeneration": model.generation,
                "lastTransitionTime": last["lastTransitionTime"]
                if last.get("status") == value
                else _time(now),
                "reason": reason,
                "message": message[:MAX_MESSAGE_CHARS],
            }
        )
    return conditions


def _replicas(
    before: Sequence[Mapping[str, Any]], replicas: Mapping[str, Replica], now: float
) -> list[dict[str, Any]]:
    """One entry per pod, the most troubled first where not all fit, then by name."""
    by_trouble = sorted(replicas, key=lambda name: (_TROUBLE.index(replicas[name].state), name))
    known = {
        (entry.get("pod"), entry.get("state"), entry.get("reason")): entry.get("since") for entry in before
    }
    entries = []
    for name in sorted(by_trouble[:MAX_REPLICAS]):
        replica = replicas[name]
        entry = {"pod": name, "state": replica.state, "reason": replica.reason}
        if replica.message:
            entry["message"] = replica.message[:MAX_MESSAGE_CHARS]
        entry["since"] = known.get((name, replica.state, replica.reason)) or _time(now)
        entries.append(entry)
    return entries


def _last_eviction(replicas: Mapping[str, Replica]) -> dict[str, Any] | None:
    gone = [(replica.eviction, pod) for pod, replica in replicas.items() if replica.eviction]
    if not gone:
        return None
    eviction, pod = max(gone, key=lambda entry: (entry[0].at, entry[1]))
    return {"pod": pod, "reason": eviction.reason, "at": _time(eviction.at), "count": eviction.count}


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


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
