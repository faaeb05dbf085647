"""One phase and one reason for a model on all of its pods. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from flexserv_operator.replica import Replica

TROUBLE = ("Failed", "Evicted", "Unreachable", "Loading", "Pending", "Standby", "Loaded")
"""States, the one that needs attention most first."""


@dataclass(frozen=True)
class Summary:
    """Phase, and the reason and message of the condition Ready."""

    phase: str
    ready: bool
    reason: str
    message: str


def summarize(pinned: bool, replicas: Mapping[str, Replica]) -> Summary:
    """One phase and reason for all pods."""
    if not replicas:
        return Summary("Pending", False, "NoBackends", "the backend's Service selects no running pod")
    if not pinned:
        # Nothing is owed to a pod that cannot be asked yet.
        started = {name: replica for name, replica in replicas.items() if not replica.starting}
        replicas = started or replicas
    states = [replica.state for replica in replicas.values()]
    total = len(states)
    if pinned and states.count("Loaded") == total:
        return Summary("Loaded", True, "Loaded", f"loaded on {pods_of(total)}")
    if not pinned and all(state in ("Loaded", "Standby", "Loading") for state in states):
        loaded = states.count("Loaded")
        if loaded:
            return Summary("Loaded", True, "Loaded", f"loaded on {loaded} of {pods_of(total)}")
        if "Loading" not in states:
            return Summary("Standby", True, "Standby", "the next request loads it")
        worst = _worst(replicas, "Loading")
        return Summary("Loading", True, worst.reason, worst.message)
    phase = _phase(pinned, replicas.values())
    worst = _worst(replicas, "Loading") if phase == "Loading" else _worst(replicas)
    return Summary(phase, False, worst.reason, worst.message)


def _phase(pinned: bool, replicas: Collection[Replica]) -> str:
    """The phase while the intent does not hold."""
    states = [replica.state for replica in replicas]
    if all(replica.starting for replica in replicas):
        return "Pending"
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
        else min(replicas, key=lambda name: (TROUBLE.index(replicas[name].state), name))
    )
    replica = replicas[name]
    message = f"{name}: {replica.message or replica.state}" if len(replicas) > 1 else replica.message
    return Summary("", False, replica.reason, message)


def blocked(problem: tuple[str, str]) -> Summary:
    """The summary of a FlexServModel that something (reason, message) keeps off all pods."""
    reason, message = problem
    return Summary("Failed" if reason == "Conflict" else "Pending", False, reason, message)


def pods_of(count: int) -> str:
    """A number of pods in words."""
    return "1 pod" if count == 1 else f"{count} pods"
