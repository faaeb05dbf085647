"""How long a model that killed its container is kept away, and what ends that."""

import pytest
from flexserv_operator.inventory import Identity
from flexserv_operator.quarantine import NONE, Crash, Ward, read

from tests.support.operator_values import NOW

MODEL = Identity("serve", "org/a", None)
RECORD = NONE.after(Crash("i-2", "OOMKilled"), NOW)


def ward(*known, now=NOW):
    ward = Ward()
    ward.admit(known, now)
    return ward


def seen(generation=1, written=None, uid="u"):
    """A FlexServModel whose status was written at generation `written`, with the record in it."""
    status = {} if written is None else {"quarantine": RECORD.status(written)}
    return uid, generation, MODEL, status


def test_the_record_survives_the_operator_in_the_status():
    (record,) = ward(seen(1, written=1)).records.values()
    assert (record.count, record.until, record.reason, record.instances) == (
        1,
        NOW + 60,
        "OOMKilled",
        ("i-2",),
    )


def test_an_edit_ends_the_wait_and_the_next_death_makes_a_longer_one():
    kept = ward(seen(1, written=1))
    kept.admit([seen(2, written=1)], NOW + 5)
    record = kept.records[MODEL]
    assert record.until == NOW + 5
    again = record.after(Crash("i-3", "OOMKilled"), NOW + 9)
    assert (again.count, again.until) == (2, NOW + 9 + 120)


def test_the_death_before_the_edit_is_not_counted_again():
    kept = ward(seen(1, written=1))
    kept.admit([seen(2, written=1)], NOW + 5)
    assert not kept.note(MODEL, Crash("i-2", "OOMKilled"), NOW + 6)


def test_an_edit_while_the_operator_was_away_counts():
    assert ward(seen(2, written=1), now=NOW + 5).records[MODEL].until == NOW + 5


def test_no_edit_no_end():
    kept = ward(seen(1, written=1))
    kept.admit([seen(1, written=1)], NOW + 5)
    assert kept.records[MODEL].until == NOW + 60


def test_an_edit_after_the_wait_changes_nothing():
    kept = ward(seen(1, written=1))
    kept.admit([seen(2, written=1)], NOW + 99)
    assert kept.records[MODEL].until == NOW + 60


def test_another_flexservmodel_of_the_same_model_that_comes_or_goes_is_no_edit():
    kept = ward(seen(1, written=1))
    kept.admit([seen(1, written=1), seen(7, uid="v")], NOW + 5)
    kept.admit([seen(1, written=1)], NOW + 6)
    assert kept.records[MODEL].until == NOW + 60


@pytest.mark.parametrize(
    "broken", [None, {}, {"count": "many"}, {"count": 1, "until": 3, "reason": "", "instances": 4}]
)
def test_a_record_that_makes_no_sense_is_none(broken):
    assert read({"quarantine": broken}) is None


@pytest.mark.parametrize(
    ("pinned", "states", "now", "released"),
    [
        (True, ["Loaded", "Loaded"], NOW + 61, True),
        (True, ["Loaded", "Failed"], NOW + 61, False),
        (True, ["Loaded", "Loaded"], NOW + 59, False),
        (False, ["Loaded", "Standby"], NOW + 61, True),
        (False, ["Standby"], NOW + 61, False),
    ],
)
def test_it_is_over_once_the_model_came_through_after_its_wait(pinned, states, now, released):
    assert ward(seen(1, written=1)).release(MODEL, pinned, states, now) == released


def test_a_model_that_nobody_claims_any_more_is_forgotten():
    kept = ward(seen(1, written=1))
    kept.admit([], NOW)
    assert not kept.records
