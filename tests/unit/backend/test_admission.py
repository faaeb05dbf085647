"""Admission: what fits, who goes for it, and the numbers of a refusal."""

import pytest
from hf_transformers_backend.admission import Occupant, Room, decide
from hf_transformers_backend.identity import ModelIdentity
from hypothesis import given
from hypothesis import strategies as st

A, B, C = (ModelIdentity(name) for name in "abc")
FREE_100 = Room("cpu", free_bytes=100, used_bytes=900, total_bytes=1000)


@pytest.mark.parametrize(
    ("needed", "room", "occupants", "admitted", "make_room"),
    [
        (None, FREE_100, [], True, ()),
        (500, None, [], True, ()),
        (100, FREE_100, [], True, ()),
        (101, FREE_100, [], False, ()),
        (150, FREE_100, [Occupant(A, 50, True, 1.0)], True, (A,)),
        (151, FREE_100, [Occupant(A, 50, True, 1.0)], False, ()),
        (150, FREE_100, [Occupant(A, 50, False, 1.0)], False, ()),
        (150, FREE_100, [Occupant(A, 60, True, 2.0), Occupant(B, 60, True, 1.0)], True, (B,)),
        (200, FREE_100, [Occupant(A, 60, True, 2.0), Occupant(B, 60, True, 1.0)], True, (B, A)),
        (150, FREE_100, [Occupant(A, 0, True, 1.0), Occupant(B, 60, True, 2.0)], True, (B,)),
        # With the monitor, the threshold is the limit: it would evict at once what is loaded above it.
        (50, Room("cpu", 100, 900, 1000, threshold_ratio=0.94), [], False, ()),
        (40, Room("cpu", 100, 900, 1000, threshold_ratio=0.94), [], True, ()),
    ],
)
def test_a_load_is_admitted_if_it_fits_or_idle_models_suffice(
    needed: int | None,
    room: Room | None,
    occupants: list[Occupant],
    admitted: bool,
    make_room: tuple[ModelIdentity, ...],
) -> None:
    decision = decide(needed, room, occupants)
    assert (decision.admitted, decision.make_room) == (admitted, make_room)


occupants_strategy = st.lists(
    st.builds(
        Occupant,
        st.builds(ModelIdentity, st.uuids().map(str)),
        st.integers(0, 500),
        st.booleans(),
        st.floats(0, 100),
    ),
    max_size=8,
)


@given(needed=st.integers(0, 3000), free=st.integers(0, 1000), occupants=occupants_strategy)
def test_nobody_leaves_in_vain(needed: int, free: int, occupants: list[Occupant]) -> None:
    room = Room("cpu", free_bytes=free, used_bytes=0, total_bytes=1000)
    decision = decide(needed, room, occupants)
    by_identity = {occupant.identity: occupant for occupant in occupants}
    going = [by_identity[identity] for identity in decision.make_room]
    freed = sum(occupant.bytes for occupant in going)
    assert all(occupant.movable and occupant.bytes for occupant in going)
    assert [o.last_used_at for o in going] == sorted(o.last_used_at for o in going)
    if decision.admitted:
        assert free + freed >= needed
        assert not going or free + freed - going[-1].bytes < needed
    else:
        assert not going
        assert free + sum(o.bytes for o in occupants if o.movable) < needed
