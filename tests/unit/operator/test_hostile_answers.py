"""Whatever JSON a pod answers: it is refused as a whole, or everything that follows from it works."""

import json
from typing import Any

import pytest
from flexserv_operator.backend_client import _refusal
from flexserv_operator.fetching import Fetches
from flexserv_operator.inventory import Inventory
from flexserv_operator.status import build
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.support.operator_values import (
    NOW,
    decide,
    desired,
    evicted,
    failed,
    inventory,
    loading,
    model,
    resident,
)

WANTED = desired(model("a", priority=3), model("b"), model("c", pinned=False))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=2**60)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(
        ["org/a", "org/b", "org/c", "serve", "memory", "weights", "queued", "9999-12-31T23:59:59Z"]
    )
    | st.sampled_from(
        ["0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00Z", "insufficient_memory", "team/a#uid-x"]
    )
)
GOOD = {
    "instance_id": "i-1",
    "pod_uid": "p-1",
    "synced": False,
    "declared_hash": "same",
    "models": [
        resident("a"),
        {**resident("b"), "owner": "team/gone#uid-gone", "requested_settings": {"dtype": "auto"}},
    ],
    "loading": [
        {**loading("a", "download"), "done": 1, "total": 4},
        {**loading("c"), "done": 1.5, "total": 3},
    ],
    "failed": [
        failed("b", "insufficient_memory", needed_bytes=5, available_bytes=3),
        failed("c", "model_gated"),
    ],
    "crashed_loading": [{"model_id": "org/b", "kind": "serve"}],
    "last_evictions": [evicted("a", "memory"), evicted("b", "memory", ago=99, count=3)],
    "pressure": {"refuses_work": False},
}


def paths(value: Any, at: tuple = ()) -> list[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, each in inner for path in paths(each, (*at, key)))]


def replaced(value: Any, path: tuple, new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


def follow(answer: Any) -> None:
    """All that the operator does with an inventory, up to the bytes that it sends to the API server."""
    fetches = Fetches()
    fetches.saw("p-1", "pod-a", answer, NOW)
    plan = decide(WANTED, answer, elsewhere=fetches.elsewhere("p-2", WANTED.claims, NOW))
    decide(WANTED, answer, plan.memory, NOW + 100)
    for claim in WANTED.claims:
        (uid,) = claim.claimants
        status = build(
            WANTED.models[uid], {}, claim, "flexserv", {"pod-a": plan.replicas[claim.identity]}, NOW
        )
        json.dumps(status, ensure_ascii=False, allow_nan=False).encode("utf-8")
        if "lastEviction" in status:
            assert status["lastEviction"]["count"] < 2**31


@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_one_wrong_value_anywhere_in_an_inventory_does_no_harm(data):
    path = data.draw(st.sampled_from(paths(GOOD)))
    wrong = replaced(GOOD, path, data.draw(SCALARS | st.lists(SCALARS, max_size=2)))
    try:
        answer = Inventory.model_validate(json.loads(json.dumps(wrong)))
    except ValidationError:
        return
    follow(answer)


def test_the_answer_that_is_bent_here_is_a_good_one():
    follow(Inventory.model_validate(GOOD))


@pytest.mark.parametrize(
    "eviction",
    [{"at": 1e300}, {"at": -1}, {"at": "0001-01-01T00:00:00+14:00"}, {"count": 2**63}, {"at": float("inf")}],
)
def test_times_and_counts_that_no_status_could_hold_are_lies(eviction):
    with pytest.raises(ValidationError):
        inventory(last_evictions=[{**evicted("a", "memory"), **eviction}])


@pytest.mark.parametrize(
    "content", [{"error": {"message": "\ud800", "code": "\udfff"}}, {"error": {"message": {}}}, []]
)
def test_what_a_pod_says_with_its_no_can_be_written_down(content):
    refusal = _refusal(500, content)
    assert str(refusal).encode("utf-8")
    assert refusal.code.encode("utf-8")


def test_a_pod_cannot_fill_the_status_with_its_words():
    refusal = _refusal(500, {"error": {"message": "x" * 10**6, "code": "y" * 10**6}})
    assert len(str(refusal)) < 500
