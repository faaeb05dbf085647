"""The operator dies after each of its calls in turn, and its successor finishes the work: nothing is loaded
twice, nothing is lost, nothing is left over."""

from collections.abc import Callable

import pytest

from tests.support.operator_world import Operator, World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "5"}
AT_A_TIME = 8
FEWEST_CALLS, MOST_CALLS = 16, 120
"""How many calls it takes, at least and at most: the looks while something loads vary with the machine."""
STAYS = ["org/new", "org/next@v2", "org/of-somebody-else", "org/stays"]
PHASES = {"stays": "Loaded", "next": "Loaded", "new": "Loaded", "rare": "Standby"}


def unfinished(world: World) -> World:
    """A pod as a dead operator left it: something to keep, to load, to replace and to remove."""
    backend = world.add_pod("pod-a", "127.0.0.2", load_seconds=0.1)
    owner = {}
    for name, spec in {
        "stays": {"model": "org/stays"},
        "next": {"model": "org/next", "revision": "v2"},
        "new": {"model": "org/new", "priority": 1},
        "rare": {"model": "org/rare", "residency": "OnDemand"},
    }.items():
        owner[name] = f"{world.namespace}/{name}#{world.apply(name, **spec)['metadata']['uid']}"
    backend.put("org/stays", owner["stays"])
    backend.put("org/next", owner["next"], "v1")
    backend.put("org/gone", f"{world.namespace}/gone#uid-of-a-deleted-one")
    backend.put("org/of-somebody-else", None)
    return world


def finished(world: World) -> bool:
    (backend,) = world.fleet.backends.values()
    assert backend.resident_ids() == STAYS
    assert backend.is_synced and len(backend.declared) == len(PHASES)
    assert {name: world.status(name).get("phase") for name in PHASES} == PHASES
    return True


def check(world: World, after: str) -> None:
    """What must be so whenever the operator died."""
    (backend,) = world.fleet.backends.values()
    assert dict(backend.begun) == {"org/new": 1, "org/next": 1}, after
    gone = {departure.name: departure for departure in backend.departures}
    assert sorted(gone) == ["org/gone", "org/next@v1"], after
    assert "org/next@v2" in gone["org/next@v1"].stayed, after
    assert all(world.status(name)["ready"] == "1/1" for name in ("stays", "next", "new")), after
    assert "finalizers" not in world.get("new")["metadata"], after


@pytest.mark.timeout(400)
def test_an_operator_that_dies_after_any_call_is_succeeded_by_one_that_finishes(
    make_world: Callable[[], World],
):
    for first in range(1, MOST_CALLS, AT_A_TIME):
        numbers = range(first, first + AT_A_TIME)
        worlds = [unfinished(make_world()) for _ in numbers]
        mortals = [
            world.start_operator(die_after=number, **FAST)
            for number, world in zip(numbers, worlds, strict=True)
        ]

        def over(operator: Operator, world: World) -> bool:
            return operator.process.poll() is not None or finished(world)

        for operator, world in zip(mortals, worlds, strict=True):
            world.soon(lambda operator=operator, world=world: over(operator, world), timeout=60)
        survivors = [operator.process.poll() is None for operator in mortals]
        for operator, world in zip(mortals, worlds, strict=True):
            if operator.process.poll() is not None:
                assert operator.process.poll() == -9, operator.log.read_text()[-3000:]
                world.start_operator(**FAST)
        for number, world in zip(numbers, worlds, strict=True):
            world.soon(lambda world=world: finished(world), timeout=60)
            check(world, f"killed after call {number}")
            for operator in world.operators:
                operator.process.kill()
        if any(survivors):
            assert first > FEWEST_CALLS
            return
    raise AssertionError(f"{MOST_CALLS} calls, and the work is not done")
