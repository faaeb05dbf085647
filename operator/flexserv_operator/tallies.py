"""How often memory pressure took a model from a pod: what its growing cool-down is made of. Pure.

The last count stands in the status of the FlexServModel, so that it outlives the operator, whose memory
outlives the container. Times are seconds of the epoch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from flexserv_operator.backoff import COOL_DOWN
from flexserv_operator.desired import Claim
from flexserv_operator.inventory import Identity, Inventory

FORGOTTEN_AFTER_S = 4 * COOL_DOWN.longest
"""A model that was not taken for so long had settled: the next time is the first one again."""
SAME_S = 1.0
"""The status has whole seconds."""


@dataclass(frozen=True)
class Tally:
    """Times in a row, and when the last one was."""

    count: int
    at: float


def tally(
    claims: Iterable[Claim], inventory: Inventory, before: Mapping[Identity, Tally]
) -> dict[Identity, Tally]:
    """The tallies after this look."""
    after: dict[Identity, Tally] = {}
    for claim in claims:
        identity = claim.identity
        eviction, last = inventory.evictions.get(identity), before.get(identity)
        if eviction is None or eviction.reason != "memory":
            if last is not None:
                after[identity] = last
        elif last is None:
            after[identity] = Tally(max(eviction.count, 1), eviction.at)
        elif eviction.at <= last.at + SAME_S:
            after[identity] = last
        else:
            in_a_row = eviction.at - last.at <= FORGOTTEN_AFTER_S
            after[identity] = Tally(last.count + 1 if in_a_row else 1, eviction.at)
    return after


def read(pod_name: str, statuses: Iterable[tuple[Identity, Mapping[str, Any]]]) -> dict[Identity, Tally]:
    """What the statuses tell of that pod."""
    tallies: dict[Identity, Tally] = {}
    for identity, status in statuses:
        last: Any = status.get("lastEviction")
        try:
            if last["pod"] == pod_name and last["reason"] == "memory":
                tallies[identity] = Tally(int(last["count"]), datetime.fromisoformat(last["at"]).timestamp())
        except (TypeError, KeyError, ValueError):
            continue
    return tallies
