"""What to do on one pod: from what should be, what is, and what was tried. Pure; times are seconds of the
epoch.

The plan's order matters: the declared list first (so that no request brings back what is unloaded next), then
unloads, then at most one load, then `synced`.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from flexserv_operator.backoff import NOT_FAILURES, Attempt, after_failure
from flexserv_operator.desired import Claim, Desired
from flexserv_operator.fetching import NOBODY
from flexserv_operator.inventory import Identity, Inventory
from flexserv_operator.plans import Action, Declare, Load, Memory, Plan, Refusal, Sync
from flexserv_operator.quarantine import NONE, Crash
from flexserv_operator.replica import Replica, look
from flexserv_operator.tallies import tally
from flexserv_operator.unloads import Unload, garbage, make_room, overdue

REFUSED = "refused"
"""Stands for the load_id of a load that the pod refused outright; its inventory may list the refusal as
well."""


def plan(
    desired: Desired,
    declared_hash: str,
    inventory: Inventory,
    memory: Memory,
    now: float,
    oom_killed: bool = False,
    elsewhere: Mapping[Identity, str] = NOBODY,
) -> Plan:
    """Decide for one pod.

    `declared_hash` is the hash of the list that the pod should have; `oom_killed` says that the pod's last
    container ended for want of memory; `elsewhere` names models that this pod must not load for now, and why.
    """
    crashes = _crashes(desired, inventory, memory, oom_killed)
    applied = _applied(desired, inventory, memory)
    attempts = _learn(desired, inventory, memory, now)
    tallies = tally(desired.claims, inventory, memory.tallies)
    timeouts, attempts = overdue(desired, inventory, attempts, now)
    room, attempts = make_room(desired, inventory, memory.attempts, attempts, now)
    unloads = (*garbage(desired, inventory), *timeouts, *room)
    leaving = {unload.identity for unload in unloads if isinstance(unload, Unload)}
    refusals = {identity: (each.reason, each.message) for identity, each in memory.refusals.items()}
    replicas = {
        claim.identity: look(
            claim,
            desired,
            inventory,
            attempts.get(claim.identity),
            now,
            leaving=claim.identity in leaving,
            died=claim.identity in crashes,
            pressed=tallies.get(claim.identity),
            applied=claim.identity in applied,
            refusal=refusals.get(claim.identity),
        )
        for claim in desired.claims
    }
    for identity, why in elsewhere.items():
        if identity in replicas and replicas[identity].state == "Pending":
            replicas[identity] = replace(replicas[identity], reason="WaitingForFiles", message=why)
    refuses = inventory.pressure is not None and inventory.pressure.refuses_work
    load = None if refuses else _next_load(desired.claims, replicas, elsewhere)
    if load is not None:
        waiting = replicas[load.claim.identity]
        replicas[load.claim.identity] = replace(
            waiting, state="Loading", reason="Loading", message="load requested"
        )
    actions: list[Action] = [Declare()] if inventory.declared_hash != declared_hash else []
    actions += unloads
    actions += [load] if load else []
    if not inventory.synced and all(
        replicas[claim.identity].settled for claim in desired.claims if claim.pinned
    ):
        actions.append(Sync())
    if crashes:
        # The list must go out with the model blocked in it: in the next cycle, when the record is made.
        actions = []
    return Plan(
        actions=tuple(actions),
        replicas=replicas,
        memory=replace(
            memory,
            instance=inventory.instance_id,
            in_weights=frozenset(load.identity for load in inventory.loading if load.stage == "weights"),
            attempts=attempts,
            applied=applied,
            tallies=tallies,
        ),
        crashes=crashes,
    )


def standing(desired: Desired, inventory: Inventory, memory: Memory) -> dict[Identity, Refusal]:
    """The refusals that still hold: of this instance of the backend, and of claims that nobody edited."""
    if memory.instance != inventory.instance_id:
        return {}
    return {
        claim.identity: memory.refusals[claim.identity]
        for claim in desired.claims
        if claim.identity in memory.refusals and memory.refusals[claim.identity].claim == claim
    }


def rejected(memory: Memory, claim: Claim, code: str, message: str, now: float) -> Memory:
    """The memory after the pod refused a load outright."""
    if code in NOT_FAILURES:
        return memory
    attempt = after_failure(
        memory.attempts.get(claim.identity),
        load_key=claim.load_key,
        code=code,
        message=message,
        seen=REFUSED,
        seed=f"{memory.instance}/{claim.identity}",
        now=now,
    )
    return replace(memory, attempts={**memory.attempts, claim.identity: attempt})


def _crashes(
    desired: Desired, inventory: Inventory, memory: Memory, oom_killed: bool
) -> dict[Identity, Crash]:
    """Models during whose load the previous container of this pod ended: its own word, or what was seen
    before."""
    died = inventory.crashed
    if memory.instance not in ("", inventory.instance_id):
        died = died | memory.in_weights
    crash = Crash(inventory.instance_id, "OOMKilled" if oom_killed else "CrashedWhileLoading")
    return {
        claim.identity: crash
        for claim in desired.claims
        if claim.identity in died
        and crash.instance not in desired.quarantines.get(claim.identity, NONE).instances
    }


def _applied(desired: Desired, inventory: Inventory, memory: Memory) -> dict[Identity, str]:
    """What still holds of the pod's word that it fulfills claims: an edit ends it, as does a new instance."""
    if memory.instance != inventory.instance_id:
        return {}
    return {
        claim.identity: claim.load_key
        for claim in desired.claims
        if memory.applied.get(claim.identity) == claim.load_key
    }


def _learn(desired: Desired, inventory: Inventory, memory: Memory, now: float) -> dict[Identity, Attempt]:
    """The failed loads after this look: new ones counted, old ones forgotten once the model is in or was
    edited."""
    known = memory.attempts if memory.instance in ("", inventory.instance_id) else {}
    attempts: dict[Identity, Attempt] = {}
    for claim in desired.claims:
        identity, last = claim.identity, known.get(claim.identity)
        failure = inventory.failures.get(identity)
        if failure is None and inventory.residents.get(identity):
            continue
        if failure is None or failure.code in NOT_FAILURES or (last and last.seen == failure.load_id):
            if last and last.load_key == claim.load_key:
                attempts[identity] = last
            elif last:
                attempts[identity] = Attempt(claim.load_key, seen=last.seen)
        elif last and last.seen == REFUSED and last.code == failure.code:
            attempts[identity] = replace(last, seen=failure.load_id)
        else:
            attempts[identity] = after_failure(
                last,
                load_key=claim.load_key,
                code=failure.code,
                message=failure.message,
                seen=failure.load_id,
                seed=f"{inventory.instance_id}/{identity}",
                now=now,
            )
    return attempts


def _next_load(
    claims: Iterable[Claim], replicas: Mapping[Identity, Replica], elsewhere: Container[Identity]
) -> Load | None:
    """The most important model that waits, the oldest among equals, unless a pinned one is loading
    already."""
    if any(claim.pinned and replicas[claim.identity].state == "Loading" for claim in claims):
        return None
    waiting = [
        claim
        for claim in claims
        if replicas[claim.identity].state == "Pending" and claim.identity not in elsewhere
    ]
    return Load(max(waiting, key=lambda claim: claim.priority)) if waiting else None
