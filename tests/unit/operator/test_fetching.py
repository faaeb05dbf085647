"""One pod fetches, the others wait: who has the turn, and when it ends."""

import pytest
from flexserv_operator.fetching import Fetches

from tests.support.operator_values import (
    NOW,
    decide,
    desired,
    failed,
    inventory,
    loading,
    model,
    resident,
    spoken,
)

WANTED = desired(model("a", load_timeout=100))
CLAIM = WANTED.claims[0]
FETCHING = inventory(loading=[loading("a", "download")])


def waits(fetches: Fetches, pod: str = "b", now: float = NOW, wanted=WANTED) -> bool:
    return bool(fetches.elsewhere(pod, wanted.claims, now))


@pytest.fixture
def fetches() -> Fetches:
    """Pod a was told to load the model."""
    fetches = Fetches()
    fetches.begin("a", "pod-a", "i-1", CLAIM, NOW)
    return fetches


def test_the_first_pod_goes_ahead_and_the_second_waits_for_it(fetches: Fetches):
    assert not waits(fetches, "a")
    (why,) = fetches.elsewhere("b", WANTED.claims, NOW).values()
    assert "pod-a" in why


@pytest.mark.parametrize(
    ("seen", "over"),
    [
        (FETCHING, False),
        (inventory(loading=[loading("a", "queued", started_at=None)]), False),
        (inventory(loading=[loading("a", "weights")]), True),
        (inventory(loading=[loading("a", "queued", since=5)]), True),
        (inventory(resident("a")), True),
        (inventory(failed=[failed("a", "model_not_found")]), True),
        (inventory(), True),
        (inventory(loading=[loading("a", "download")], instance_id="i-2"), False),
        (inventory(instance_id="i-2"), True),
    ],
    ids=[
        "it is fetching",
        "it waits for its turn to fetch",
        "it has the files and loads them",
        "it has the files and waits for its turn to load them",
        "it has loaded them",
        "it failed",
        "its load was aborted",
        "its container restarted and fetches again",
        "its container restarted",
    ],
)
def test_the_turn_ends_when_the_pod_has_the_files_or_will_not_bring_them(fetches, seen, over):
    fetches.saw("a", "pod-a", seen, NOW + 1)
    assert waits(fetches) == (not over)


def test_the_turn_ends_when_the_pod_goes_or_falls_silent(fetches: Fetches):
    fetches.lost("a")
    assert not waits(fetches)


def test_the_turn_ends_after_the_load_timeout(fetches: Fetches):
    fetches.saw("a", "pod-a", FETCHING, NOW + 99)
    assert waits(fetches, now=NOW + 99)
    assert not waits(fetches, now=NOW + 100)


def test_when_one_failed_it_is_the_next_ones_turn_and_the_others_still_wait(fetches: Fetches):
    fetches.saw("a", "pod-a", inventory(failed=[failed("a", "hub_unavailable")]), NOW + 1)
    fetches.begin("b", "pod-b", "i-1", CLAIM, NOW + 1)
    assert waits(fetches, "c", NOW + 1) and waits(fetches, "a", NOW + 1)


def test_a_load_that_did_not_fit_into_memory_may_have_fetched_nothing(fetches: Fetches):
    fetches.saw("a", "pod-a", inventory(failed=[failed("a", "insufficient_memory")]), NOW + 1)
    fetches.begin("b", "pod-b", "i-1", CLAIM, NOW + 1)
    assert waits(fetches, "c", NOW + 1)


def test_a_download_that_somebody_else_began_counts():
    fetches = Fetches()
    fetches.saw("a", "pod-a", FETCHING, NOW)
    assert waits(fetches) and not waits(fetches, "a")


def test_a_new_operator_lets_nobody_fetch_before_it_has_heard_of_every_pod():
    fetches = Fetches()
    for pod in ("a", "b", "c"):
        fetches.expect(pod)
    fetches.saw("a", "pod-a", inventory(), NOW)
    assert waits(fetches, "a")
    fetches.lost("b")
    fetches.saw("c", "pod-c", FETCHING, NOW)
    assert waits(fetches, "a") and not waits(fetches, "c")


def test_a_pod_that_was_not_heard_of_holds_up_nothing_that_is_there():
    fetches = Fetches()
    fetches.expect("b")
    fetches.saw("a", "pod-a", inventory(resident("a")), NOW)
    assert not waits(fetches, "c")


def test_a_folder_in_the_pods_is_nobodys_turn():
    wanted = desired(model("a", model_id="/models/a"))
    fetches = Fetches()
    fetches.expect("a")
    fetches.begin("a", "pod-a", "i-1", wanted.claims[0], NOW)
    assert not waits(fetches, wanted=wanted)


def test_each_revision_is_fetched_on_its_own(fetches: Fetches):
    assert not waits(fetches, wanted=desired(model("a", revision="v2")))


def test_what_nobody_claims_any_more_is_forgotten(fetches: Fetches):
    fetches.saw("a", "pod-a", inventory(resident("a")), NOW)
    fetches.keep_only([])
    fetches.begin("a", "pod-a", "i-1", CLAIM, NOW)
    assert waits(fetches)


def test_a_pod_that_waits_for_files_loads_something_else_meanwhile_and_says_so():
    wanted = desired(model("a", priority=9), model("b"))
    a, _ = wanted.claims if wanted.claims[0].identity.model_id == "org/a" else reversed(wanted.claims)
    plan = decide(wanted, inventory(synced=False), elsewhere={a.identity: "waits for pod-a"})
    assert spoken(plan.actions) == ["load org/b"]
    replica = plan.replicas[a.identity]
    assert (replica.state, replica.reason, replica.message) == (
        "Pending",
        "WaitingForFiles",
        "waits for pod-a",
    )


def test_a_model_that_is_in_memory_waits_for_nothing():
    plan = decide(WANTED, inventory(resident("a")), elsewhere={CLAIM.identity: "waits for pod-a"})
    assert plan.replicas[CLAIM.identity].state == "Loaded"
