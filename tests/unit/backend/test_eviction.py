"""Who goes when memory is short: each rule as a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hf_transformers_backend.eviction import (
    Candidate,
    History,
    Plan,
    Reading,
    Scope,
    choose_victims,
    decide,
)
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.settings.kinds import EvictionPolicy
from hypothesis import given
from hypothesis import strategies as st

GIB = 1024**3


def reading(
    used: float, *, total: float = 100, scope: Scope = "container", threshold: float = 0.9
) -> Reading:
    return Reading("ram", "cpu", scope, int(used * GIB), int(total * GIB), threshold)


def gpu(number: int, used: float, *, total: float = 100, threshold: float = 0.9) -> Reading:
    return Reading("vram", f"cuda:{number}", "device", int(used * GIB), int(total * GIB), threshold)


def model(
    name: str,
    size: float = 10,
    *,
    used_at: float = 0,
    pinned: bool = False,
    priority: int = 0,
    active: int = 0,
    leaving: bool = False,
    on: Mapping[str, float] | None = None,
) -> Candidate:
    held = {device: int(gib * GIB) for device, gib in (on or {"cpu": size}).items()}
    return Candidate(ModelIdentity(name), held, pinned, priority, used_at, active, leaving)


def plan(
    readings: list[Reading],
    models: list[Candidate],
    *,
    released: bool = True,
    history: History | None = None,
    now: float = 1000.0,
    policy: EvictionPolicy = "lru",
) -> Plan:
    return decide(
        readings, models, caches_released=released, history=history or History(), now=now, policy=policy
    )


@dataclass(frozen=True)
class Case:
    sentence: str
    readings: list[Reading]
    models: list[Candidate]
    victims: list[str]
    action: str = "evict"
    refuses: bool = field(default=False)


CASES = [
    Case("below the threshold nothing happens", [reading(89.9)], [model("a")], [], "nothing"),
    Case("at the threshold it starts", [reading(90)], [model("a")], ["a"]),
    Case(
        "the least recently used goes first",
        [reading(91)],
        [model("new", used_at=9), model("old", used_at=1), model("middle", used_at=5)],
        ["old"],
    ),
    Case(
        "unpinned ones go before pinned ones, however recently used",
        [reading(91)],
        [model("pinned", pinned=True, used_at=1), model("fresh", used_at=99)],
        ["fresh"],
    ),
    Case(
        "pinned ones go lowest priority first",
        [reading(91)],
        [
            model("high", pinned=True, priority=9, used_at=1),
            model("low", pinned=True, priority=-1, used_at=9),
        ],
        ["low"],
    ),
    Case(
        "pinned ones of one priority go least recently used first",
        [reading(91)],
        [model("new", pinned=True, used_at=9), model("old", pinned=True, used_at=1)],
        ["old"],
    ),
    Case(
        "the priority of an unpinned one does not matter",
        [reading(91)],
        [model("low", priority=-9, used_at=9), model("old", priority=9, used_at=1)],
        ["old"],
    ),
    Case(
        "a model in use never goes",
        [reading(91)],
        [model("used", active=1, used_at=1), model("idle", used_at=9)],
        ["idle"],
    ),
    Case(
        "as many go as bring the reading to the margin, and no more",
        [reading(100)],
        [model("a", 9, used_at=1), model("b", 9, used_at=2), model("c", 9, used_at=3)],
        ["a", "b"],
    ),
    Case(
        "a small one is spared when a large one that is needed anyway suffices",
        [reading(100)],
        [model("small", 1, used_at=1), model("large", 30, used_at=2)],
        ["large"],
    ),
    Case(
        "one that frees nothing there is never touched",
        [reading(95)],
        [
            model("elsewhere", on={"cuda:0": 30}, used_at=1),
            model("weightless", 0, used_at=2),
            model("here", used_at=3),
        ],
        ["here"],
    ),
    Case(
        "when all unused ones together do not suffice, all of them go",
        [reading(99)],
        [model("a", 1, used_at=1), model("b", 1, used_at=2), model("used", 50, active=2)],
        ["a", "b"],
    ),
    Case("with all in use new work is refused", [reading(95)], [model("a", active=1)], [], "exhausted", True),
    Case(
        "a container that is full of nothing of ours refuses work too",
        [reading(95)],
        [],
        [],
        "exhausted",
        True,
    ),
    Case(
        "in a container our models go even if they cannot suffice",
        [reading(99)],
        [model("a", 1)],
        ["a"],
    ),
    Case(
        "on an unlimited node what neighbours use is not paid for with our models",
        [reading(99, scope="node")],
        [model("a", 5)],
        [],
        "external",
    ),
    Case(
        "on an unlimited node ours go when that helps",
        [reading(92, scope="node")],
        [model("a", 5)],
        ["a"],
    ),
    Case(
        "a shared GPU that others fill is not ours",
        [gpu(0, 99)],
        [model("a", on={"cuda:0": 5})],
        [],
        "external",
    ),
    Case(
        "models in use count for whose memory it is",
        [gpu(0, 95)],
        [model("used", on={"cuda:0": 40}, active=1), model("idle", on={"cuda:0": 2})],
        ["idle"],
    ),
    Case(
        "only the pressed GPU is relieved",
        [gpu(0, 95), gpu(1, 50)],
        [model("first", on={"cuda:0": 20}, used_at=9), model("second", on={"cuda:1": 20}, used_at=1)],
        ["first"],
    ),
    Case(
        "a model over two GPUs relieves both",
        [gpu(0, 95), gpu(1, 95)],
        [
            model("both", on={"cuda:0": 20, "cuda:1": 20}, used_at=1),
            model("first", on={"cuda:0": 20}, used_at=2),
            model("second", on={"cuda:1": 20}, used_at=3),
        ],
        ["both"],
    ),
    Case(
        "others' pressure on one memory does not hide our own on another",
        [reading(99, scope="node"), gpu(0, 95)],
        [model("a", on={"cuda:0": 20})],
        ["a"],
    ),
    Case(
        "others' pressure refuses no work even when ours is exhausted elsewhere",
        [reading(99, scope="node"), gpu(0, 95)],
        [model("a", on={"cuda:0": 20}, active=1)],
        [],
        "exhausted",
        True,
    ),
    Case(
        "one on its way out is not chosen again",
        [reading(91)],
        [model("leaving", leaving=True), model("idle", used_at=9)],
        ["idle"],
    ),
    Case(
        "what one on its way out still holds is ours",
        [gpu(0, 95)],
        [model("leaving", on={"cuda:0": 40}, active=1, leaving=True), model("idle", on={"cuda:0": 2})],
        ["idle"],
    ),
    Case("a threshold of zero evicts whatever is there", [reading(1, threshold=0.0)], [model("a", 1)], ["a"]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_rule(case: Case) -> None:
    found = plan(case.readings, case.models)
    assert (found.action, [victim.model_id for victim in found.victims]) == (case.action, case.victims)
    assert (found.pressure is not None and found.pressure.refuses_work) == case.refuses


def test_caches_are_released_and_measured_again_before_anybody_goes() -> None:
    found = plan([reading(95)], [model("a")], released=False)
    assert (found.action, found.victims) == ("release_caches", ())


EVERYBODY = [
    model("used", active=2, used_at=1),
    model("pinned", pinned=True, used_at=2),
    model("elsewhere", on={"cuda:0": 5}, used_at=3),
    model("leaving", active=1, leaving=True),
]


@pytest.mark.parametrize(
    ("pressed", "action", "victims"),
    [
        (reading(89), "nothing", []),
        (reading(91), "evict", ["used", "elsewhere", "pinned"]),
        (reading(99, scope="node"), "evict", ["used", "elsewhere", "pinned"]),
    ],
    ids=["below the threshold nothing", "all, also those in use or pinned", "whoever's memory it is"],
)
def test_the_policy_all_evicts_everything_at_once(pressed: Reading, action: str, victims: list[str]) -> None:
    found = plan([pressed], EVERYBODY, released=False, policy="all", history=History(5, 999.0))
    assert (found.action, [victim.model_id for victim in found.victims]) == (action, victims)


@pytest.mark.parametrize(("scope", "action"), [("container", "exhausted"), ("node", "external")])
def test_with_nobody_left_the_policy_all_ends_as_the_other(scope: Scope, action: str) -> None:
    leaving = model("leaving", 5, active=1, leaving=True)
    assert plan([reading(99, scope=scope)], [leaving], policy="all").action == action


def test_of_several_pressures_the_own_one_that_refuses_work_is_shown() -> None:
    found = plan([reading(99.9, scope="node"), gpu(0, 95)], [model("a", on={"cuda:0": 20}, active=1)])
    assert [(p.resource, p.origin, p.refuses_work) for p in found.pressures] == [
        ("vram", "own", True),
        ("ram", "external", False),
    ]


@pytest.mark.parametrize(("rounds", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (50, 300)])
def test_the_cool_down_grows_with_each_round_that_did_not_help(rounds: int, seconds: float) -> None:
    history = History(rounds, last_round_at=1000.0)
    early = plan([reading(91)], [model("a")], history=history, now=1000.0 + seconds - 0.1)
    due = plan([reading(91)], [model("a")], history=history, now=1000.0 + seconds)
    assert (early.action, due.action) == ("cool_down", "evict")


def test_no_cool_down_holds_when_memory_is_nearly_full() -> None:
    history = History(3, last_round_at=1000.0)
    assert plan([reading(94.9)], [model("a")], history=history, now=1000.0).action == "cool_down"
    assert plan([reading(95)], [model("a")], history=history, now=1000.0).action == "evict"


def test_while_cooling_down_work_goes_on() -> None:
    found = plan([reading(91)], [model("a")], history=History(1, 1000.0), now=1001.0)
    assert found.pressure is not None
    assert not found.pressure.refuses_work


sizes = st.integers(min_value=0, max_value=30)
candidates = st.lists(
    st.builds(
        lambda size, used_at, pinned, priority, active: (size, used_at, pinned, priority, active),
        sizes,
        st.integers(0, 5),
        st.booleans(),
        st.integers(-2, 2),
        st.integers(0, 1),
    ),
    max_size=7,
).map(
    lambda rows: [
        model(f"m{n}", size, used_at=used_at, pinned=pinned, priority=priority, active=active)
        for n, (size, used_at, pinned, priority, active) in enumerate(rows)
    ]
)


@given(candidates, st.integers(90, 100))
def test_whatever_is_resident_the_victims_suffice_or_are_all_there_are_and_none_is_needless(
    models: list[Candidate], used: int
) -> None:
    pressed = reading(used)
    victims = choose_victims([pressed], models)
    unused = [one for one in models if one.active_requests == 0 and one.frees("cpu") > 0]
    assert all(victim in unused for victim in victims)
    relief = sum(victim.frees("cpu") for victim in victims)
    if relief < pressed.excess_bytes:
        assert len(victims) == len(unused)
    else:
        assert all(relief - victim.frees("cpu") < pressed.excess_bytes for victim in victims)
    if any(victim.pinned for victim in victims):
        spared = sum(one.frees("cpu") for one in unused if not one.pinned)
        assert spared < pressed.excess_bytes, "a pinned one went although the others would have sufficed"
