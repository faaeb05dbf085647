"""How often memory pressure took a model, over restarts of everything."""

import pytest
from flexserv_operator.inventory import Identity
from flexserv_operator.plans import Memory
from flexserv_operator.replica import Replica
from flexserv_operator.status import build
from flexserv_operator.tallies import FORGOTTEN_AFTER_S, Tally, read, tally

from tests.support.operator_values import NOW, decide, desired, evicted, inventory, model, resident

WANTED = desired(model("a"))
MODEL = WANTED.claims[0].identity


def count(eviction, before: Tally | None):
    seen = inventory(last_evictions=[eviction] if eviction else [])
    found = tally(WANTED.claims, seen, {MODEL: before} if before else {}).get(MODEL)
    return found.count if found else None


@pytest.mark.parametrize(
    ("eviction", "before", "counted"),
    [
        (None, None, None),
        (None, Tally(3, NOW - 99), 3),
        (evicted("a", "idle"), None, None),
        (evicted("a", "manual"), Tally(3, NOW - 99), 3),
        (evicted("a", "memory", ago=5, count=2), None, 2),
        (evicted("a", "memory", ago=5), Tally(3, NOW - 5.4), 3),
        (evicted("a", "memory", ago=5), Tally(3, NOW - 99), 4),
        (evicted("a", "memory", ago=0), Tally(3, NOW - FORGOTTEN_AFTER_S - 1), 1),
    ],
    ids=[
        "never",
        "a new container that does not know of it",
        "gone for another reason",
        "gone for another reason since",
        "a pod seen for the first time",
        "the one that is known already",
        "once more, in a new container or an old one",
        "once more after a long time",
    ],
)
def test_times_in_a_row(eviction, before, counted):
    assert count(eviction, before) == counted


def test_the_cool_down_goes_on_growing_when_the_container_restarts():
    first = decide(WANTED, inventory(last_evictions=[evicted("a", "memory", ago=0, count=3)]))
    back = decide(WANTED, inventory(resident("a"), instance_id="i-2"), first.memory, NOW + 500)
    again = inventory(instance_id="i-2", last_evictions=[evicted("a", "memory", ago=-600, count=1)])
    seen = decide(WANTED, again, back.memory, NOW + 601)
    assert seen.replicas[MODEL].eviction.count == 4
    assert decide(WANTED, again, seen.memory, NOW + 600 + 479).replicas[MODEL].state == "Evicted"
    assert decide(WANTED, again, seen.memory, NOW + 600 + 481).replicas[MODEL].state == "Loading"


def test_the_count_survives_the_operator_in_the_status():
    plan = decide(WANTED, inventory(last_evictions=[evicted("a", "memory", ago=10, count=4)]))
    status = build(model("a"), {}, WANTED.claims[0], "flexserv", {"pod-a": plan.replicas[MODEL]}, NOW)
    assert read("pod-a", [(MODEL, status)]) == {MODEL: Tally(4, NOW - 10)}
    assert read("pod-b", [(MODEL, status)]) == {}
    memory = Memory(tallies=read("pod-a", [(MODEL, status)]))
    seen = decide(WANTED, inventory(last_evictions=[evicted("a", "memory", ago=10, count=1)]), memory)
    assert seen.replicas[MODEL].eviction.count == 4


@pytest.mark.parametrize(
    "broken", [{}, {"lastEviction": None}, {"lastEviction": {"pod": "pod-a", "reason": "memory"}}]
)
def test_a_status_without_the_count_tells_nothing(broken):
    assert read("pod-a", [(Identity("serve", "org/a", None), broken)]) == {}


def test_what_is_loaded_has_no_cool_down():
    memory = Memory(instance="i-1", tallies={MODEL: Tally(9, NOW - 1)})
    assert decide(WANTED, inventory(resident("a")), memory).replicas[MODEL] == Replica(
        "Loaded", "Loaded", "", True, None, None
    )
