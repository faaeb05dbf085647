"""The status of a FlexServModel, from what it is on each pod. Pure; `now` is in seconds of the epoch."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from flexserv_operator.backoff import LASTING
from flexserv_operator.desired import Claim, Model
from flexserv_operator.quarantine import Quarantine
from flexserv_operator.replica import Replica
from flexserv_operator.summary import TROUBLE, Summary, blocked, pods_of, summarize

MAX_REPLICAS = 20
MAX_MESSAGE_CHARS = 1024


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
    pods: int | None = None,
) -> dict[str, Any]:
    """The whole status, given the one `before`. `replicas` is by pod name; `problem` (reason, message) is
    what keeps it off all `pods`, of which there are as many as replicas unless told."""
    pinned = claim.pinned if claim else model.pinned
    summary = blocked(problem) if problem else summarize(pinned, replicas)
    resident = sum(replica.resident for replica in replicas.values())
    status: dict[str, Any] = {
        "backend": service,
        "phase": summary.phase,
        "ready": f"{resident}/{len(replicas) if pods is None else pods}",
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
        status["quarantine"] = quarantine.status(model.generation)
    return status


def _conditions(
    model: Model, before: Mapping[str, Any], summary: Summary, resident: int, now: float
) -> list[dict[str, Any]]:
    """The whole list; a condition keeps its lastTransitionTime while its status stays."""
    stalled = not summary.ready and (
        summary.reason in LASTING
        or summary.reason in ("Conflict", "BackendNotFound")
        or (summary.phase, summary.reason) == ("Failed", "BackendRefused")
    )
    working = not summary.ready and not stalled
    available = (resident > 0, "Resident" if resident else "NotResident", f"in memory on {pods_of(resident)}")
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
    by_trouble = sorted(replicas, key=lambda name: (TROUBLE.index(replicas[name].state), name))
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


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
