"""Admission: what fits, who goes for it, who is waited for, and the numbers of a refusal."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hf_transformers_backend.admission import (
    Lacking,
    Occupant,
    Room,
    Stance,
    decide,
    relief,
    with_margin,
)
from hf_transformers_backend.identity import ModelIdentity
from hypothesis import given
from hypothesis import strategies as st

FREE_100 = Room("cpu", free_bytes=100, used_bytes=900, total_bytes=1000)


def gpu(number: int, free: int, *, total: int = 1000, threshold: float = 1.0) -> Room:
    return Room(f"cuda:{number}", free, total - free, total, threshold)


def model(
    name: str,
    size: int = 0,
    used_at: float = 0,
    stance: Stance = "idle",
    *,
    in_use: bool = False,
    on: dict[str, int] | None = None,
) -> Occupant:
    return Occupant(ModelIdentity(name), on or {"cpu": size}, used_at, stance, in_use)


@dataclass(frozen=True)
class Case:
    sentence: str
    needed: int | None
    rooms: Sequence[Room] = (FREE_100,)
    occupants: Sequence[Occupant] = ()
    verdict: str = "admit"
    make_room: Sequence[str] = ()
    max_models: int = 0
    lacking: Lacking | None = field(default=None)


CASES = [
    Case("an unknown size is admitted", None),
    Case("into unknown memory everything is admitted", 500, ()),
    Case("what just fits is admitted", 100),
    Case("one byte more is refused", 101, verdict="refuse", lacking="memory"),
    Case("an idle model makes room", 150, occupants=[model("a", 50)], make_room="a"),
    Case(
        "nobody goes if that is not enough",
        151,
        occupants=[model("a", 50)],
        verdict="refuse",
        lacking="memory",
    ),
    Case(
        "one that is pinned or in use stays",
        150,
        occupants=[model("a", 50, stance="fixed")],
        verdict="refuse",
        lacking="memory",
    ),
    Case(
        "the least recently used goes", 150, occupants=[model("a", 60, 2), model("b", 60, 1)], make_room="b"
    ),
    Case("as many go as are needed", 200, occupants=[model("a", 60, 2), model("b", 60, 1)], make_room="ba"),
    Case(
        "one that holds nothing there stays",
        150,
        occupants=[model("a", 0, 1), model("b", 60, 2)],
        make_room="b",
    ),
    Case(
        "the threshold is the limit",
        50,
        [Room("cpu", 100, 900, 1000, threshold_ratio=0.94)],
        verdict="refuse",
        lacking="memory",
    ),
    Case("below the threshold there is room", 40, [Room("cpu", 100, 900, 1000, threshold_ratio=0.94)]),
    Case(
        "what is used above the threshold must go as well",
        10,
        [Room("cpu", 50, 950, 1000, threshold_ratio=0.9)],
        [model("a", 55, 1), model("b", 55, 2)],
        make_room="ab",
    ),
    Case("a model over two GPUs takes of both", 150, [gpu(0, 75), gpu(1, 75)]),
    Case("the last GPU takes what the others cannot", 150, [gpu(0, 50), gpu(1, 100)]),
    Case(
        "no other GPU takes more than its share",
        150,
        [gpu(0, 100), gpu(1, 50)],
        verdict="refuse",
        lacking="memory",
    ),
    Case(
        "room beyond the share of a GPU is not made",
        150,
        [gpu(0, 75), gpu(1, 50)],
        [model("first", on={"cuda:0": 900}, used_at=1), model("last", on={"cuda:1": 50}, used_at=2)],
        make_room=["last"],
    ),
    Case(
        "each GPU has its own threshold",
        150,
        [gpu(0, 75, threshold=0.95), gpu(1, 75)],
        verdict="refuse",
        lacking="memory",
    ),
    Case(
        "only one on a GPU in question makes room",
        150,
        [gpu(1, 100)],
        [model("other", on={"cuda:0": 900}, used_at=1), model("here", on={"cuda:1": 50}, used_at=2)],
        make_room=["here"],
    ),
    Case(
        "a device without a number means its only one",
        150,
        [Room("mps", 100, 900, 1000)],
        [model("a", on={"mps:0": 50})],
        make_room="a",
    ),
    Case(
        "the older self goes before one that was not used for longer",
        150,
        occupants=[model("self", 50, 9, "replaced"), model("b", 50, 1)],
        make_room=["self"],
    ),
    Case(
        "an older self in use is waited for",
        150,
        occupants=[model("self", 50, 9, "replaced", in_use=True)],
        verdict="wait",
        lacking="memory",
        make_room=["self"],
    ),
    Case(
        "what is leaving this moment is waited for and nobody goes for it",
        150,
        occupants=[model("leaving", 50, 9, "leaving"), model("idle", 50, 1)],
        verdict="wait",
        lacking="memory",
    ),
    Case(
        "an idle one goes rather than that a request on another is waited for",
        150,
        occupants=[model("leaving", 50, 1, "leaving", in_use=True), model("idle", 50, 9)],
        make_room=["idle"],
    ),
    Case(
        "where nobody else can go the requests of one that leaves are waited for",
        150,
        occupants=[model("leaving", 50, 1, "leaving", in_use=True), model("fixed", 500, 1, "fixed")],
        verdict="wait",
        lacking="memory",
    ),
    Case("below the cap nobody goes", 10, occupants=[model("a", 1)], max_models=2),
    Case(
        "at the cap the least recently used goes",
        10,
        occupants=[model("a", 1, 2), model("b", 1, 1)],
        max_models=2,
        make_room="b",
    ),
    Case("the cap holds for unknown sizes", None, occupants=[model("a", 1)], max_models=1, make_room="a"),
    Case(
        "at the cap with nobody to go it is refused",
        10,
        occupants=[model("a", 1, stance="fixed")],
        max_models=1,
        verdict="refuse",
        lacking="count",
    ),
    Case("a replacement is not one more", 10, occupants=[model("self", 1, stance="replaced")], max_models=1),
    Case(
        "one on its way out still counts and is waited for",
        10,
        occupants=[model("a", 1, stance="leaving")],
        max_models=1,
        verdict="wait",
        lacking="count",
    ),
    Case(
        "cap and memory may need different ones",
        150,
        occupants=[model("small", 1, 1), model("also small", 1, 2), model("large", 60, 3)],
        max_models=2,
        make_room=["small", "large"],
    ),
    Case(
        "one that went for the cap is spared when another must go for memory",
        150,
        occupants=[model("small", 1, 1), model("large", 60, 2)],
        max_models=2,
        make_room=["large"],
    ),
    Case(
        "a small one is spared when a large one that was used later must go anyway",
        150,
        occupants=[model("small", 10, 1), model("large", 50, 2)],
        make_room=["large"],
    ),
    Case(
        "of those that one too many was taken of the most recently used is spared",
        190,
        occupants=[model("a", 20, 1), model("b", 20, 2), model("large", 70, 3)],
        make_room=["a", "large"],
    ),
    Case(
        "an older self serves on beside its successor when others must go anyway",
        150,
        occupants=[model("self", 10, 9, "replaced", in_use=True), model("large", 50, 1)],
        make_room=["large"],
    ),
    Case(
        "what is leaving is not waited for when others must go anyway",
        150,
        occupants=[model("leaving", 10, 9, "leaving"), model("large", 50, 1)],
        make_room=["large"],
    ),
    Case(
        "nobody goes when the requests of one that leaves are waited for anyway",
        150,
        occupants=[model("leaving", 50, 9, "leaving", in_use=True), model("self", 20, 1, "replaced")],
        verdict="wait",
        lacking="memory",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_rule(case: Case) -> None:
    decision = decide(case.needed, case.rooms, case.occupants, case.max_models)
    assert (decision.verdict, decision.lacking) == (case.verdict, case.lacking)
    assert [identity.model_id for identity in decision.make_room] == list(case.make_room)


def test_a_refusal_has_the_numbers() -> None:
    decision = decide(500, [gpu(0, 100), gpu(1, 60)], [])
    assert (decision.needed_bytes, decision.available_bytes) == (500, 160)


@pytest.mark.parametrize(("weights", "needed"), [(None, None), (0, 0), (1000, 1050), (20, 21)])
def test_a_load_takes_a_margin_beyond_its_weights(weights: int | None, needed: int | None) -> None:
    assert with_margin(weights) == needed


@pytest.mark.parametrize(
    ("needed", "going"), [(50, ["b"]), (61, ["b", "a"]), (1000, ["b", "a"]), (None, ["b", "a"])]
)
def test_after_memory_ran_out_idle_models_go_for_the_size_of_the_load(
    needed: int | None, going: list[str]
) -> None:
    occupants = [
        model("a", 60, 2),
        model("b", 60, 1),
        model("fixed", 500, 0, "fixed"),
        model("leaving", 500, 0, "leaving"),
        model("elsewhere", on={"cuda:7": 500}, used_at=0),
    ]
    assert [identity.model_id for identity in relief(needed, [FREE_100], occupants)] == going


def test_after_memory_ran_out_a_small_one_is_spared_when_a_large_one_goes_anyway() -> None:
    occupants = [model("small", 10, 1), model("large", 60, 2)]
    assert relief(60, [FREE_100], occupants) == (ModelIdentity("large"),)


occupants_strategy = st.lists(
    st.builds(
        Occupant,
        st.builds(ModelIdentity, st.uuids().map(str)),
        st.integers(0, 500).map(lambda size: {"cpu": size}),
        st.floats(0, 100),
        st.sampled_from(["idle", "fixed"]),
    ),
    max_size=8,
)


@given(needed=st.integers(0, 3000), free=st.integers(0, 1000), occupants=occupants_strategy)
def test_nobody_leaves_in_vain(needed: int, free: int, occupants: list[Occupant]) -> None:
    room = Room("cpu", free_bytes=free, used_bytes=0, total_bytes=1000)
    decision = decide(needed, [room], occupants)
    by_identity = {occupant.identity: occupant for occupant in occupants}
    going = [by_identity[identity] for identity in decision.make_room]
    freed = sum(occupant.on("cpu") for occupant in going)
    assert all(occupant.stance == "idle" and occupant.on("cpu") for occupant in going)
    assert [o.last_used_at for o in going] == sorted(o.last_used_at for o in going)
    if decision.verdict == "admit":
        assert free + freed >= needed
        assert all(free + freed - one.on("cpu") < needed for one in going)
    else:
        assert not going
        assert free + sum(o.on("cpu") for o in occupants if o.stance == "idle") < needed
