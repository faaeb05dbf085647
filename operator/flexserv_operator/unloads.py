"""What has to leave a pod, and why: garbage, loads that take too long, room for more important models.
Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from flexserv_operator.backoff import Attempt, after_failure
from flexserv_operator.desired import Claim, Desired
from flexserv_operator.inventory import Failure, Identity, Inventory, Loading, Resident


@dataclass(frozen=True)
class Unload:
    """Unload one model, or abort its load."""

    identity: Identity
    why: Literal["unclaimed", "superseded", "room", "timeout"]


@dataclass(frozen=True)
class Disown:
    """Take the owner and the pin off a model that stays, because the backend itself has it as a default."""

    identity: Identity


def overdue(
    desired: Desired, inventory: Inventory, attempts: Mapping[Identity, Attempt], now: float
) -> tuple[list[Unload], dict[Identity, Attempt]]:
    """Loads that ran for longer than they may; time in the queue does not count."""
    unloads, after = [], dict(attempts)
    for claim in desired.claims:
        load = inventory.loads.get(claim.identity)
        if load is None or load.stage == "queued" or load.started_at is None:
            continue
        if now - load.started_at > claim.load_timeout:
            unloads.append(Unload(claim.identity, "timeout"))
            after[claim.identity] = after_failure(
                attempts.get(claim.identity),
                load_key=claim.load_key,
                code="load_timeout",
                message=f"not loaded within loadTimeoutSeconds ({claim.load_timeout} s), at {load.progress}",
                seen=load.load_id,
                seed=f"{inventory.instance_id}/{claim.identity}",
                now=now,
            )
    return unloads, after


def make_room(
    desired: Desired,
    inventory: Inventory,
    before: Mapping[Identity, Attempt],
    attempts: Mapping[Identity, Attempt],
    now: float,
) -> tuple[list[Unload], dict[Identity, Attempt]]:
    """For a pinned model that just did not fit: unload pinned ones of lower priority, if their bytes
    suffice."""
    after = dict(attempts)
    starved = [
        claim
        for claim in desired.claims
        if claim.pinned
        and (attempt := attempts.get(claim.identity)) is not None
        and attempt != before.get(claim.identity)
        and attempt.code == "insufficient_memory"
    ]
    if not starved:
        return [], after
    claim = max(starved, key=lambda starving: starving.priority)
    failure = inventory.failures.get(claim.identity)
    victims = _victims(claim, failure, desired.claims, inventory) if failure else []
    for victim in victims:
        after[victim.identity] = replace(
            after_failure(
                attempts.get(victim.identity),
                load_key=victim.load_key,
                code="displaced",
                message=f"unloaded to make room for {claim.identity} (priority {claim.priority})",
                seen="",
                seed=f"{inventory.instance_id}/{victim.identity}",
                now=now,
            ),
            displaced_by=str(claim.identity),
        )
    if victims:
        after[claim.identity] = replace(after[claim.identity], retry_at=now)
    return [Unload(victim.identity, "room") for victim in victims], after


def _victims(claim: Claim, failure: Failure, claims: Iterable[Claim], inventory: Inventory) -> list[Claim]:
    """The fewest pinned models, lowest priority first, whose bytes let `claim` in; none if all would not
    do."""
    if failure.needed_bytes is None or failure.available_bytes is None:
        return []
    lower = sorted(
        (other for other in claims if other.pinned and other.priority < claim.priority),
        key=lambda other: other.priority,
    )
    missing, victims = failure.needed_bytes - failure.available_bytes, []
    for other in lower:
        resident = inventory.residents.get(other.identity)
        if missing > 0 and resident is not None and resident.bytes:
            victims.append(other)
            missing -= resident.bytes
    return victims if missing <= 0 else []


def garbage(desired: Desired, inventory: Inventory) -> list[Unload | Disown]:
    """Models of ours that no FlexServModel names any more; an old revision only once the new one is in."""
    unloads: list[Unload | Disown] = []
    claimed = desired.claimed
    held: tuple[Resident | Loading, ...] = (*inventory.models, *inventory.loading)
    for model in held:
        uid = _our_owner(model.owner, desired.namespace)
        if uid is None or uid in desired.foreign or model.identity in claimed:
            continue
        owner = desired.models.get(uid)
        if isinstance(model, Resident) and model.default:
            unloads.append(Disown(model.identity))
        elif owner is None:
            unloads.append(Unload(model.identity, "unclaimed"))
        elif inventory.residents.get(owner.identity) or isinstance(model, Loading):
            unloads.append(Unload(model.identity, "superseded"))
        else:
            failure = inventory.failures.get(owner.identity)
            if owner.pinned and failure is not None and failure.code == "insufficient_memory":
                unloads.append(Unload(model.identity, "superseded"))
    return list(dict.fromkeys(unloads))


def _our_owner(owner: str | None, namespace: str) -> str | None:
    """The uid in an owner tag `namespace/name#uid` of this namespace."""
    place, _, uid = (owner or "").partition("#")
    return uid if uid and place.startswith(f"{namespace}/") else None
