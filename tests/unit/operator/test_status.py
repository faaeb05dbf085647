"""What people and programs read in the status."""

import pytest
from flexserv_operator.changes import merge_patch, transition, worth_writing
from flexserv_operator.inventory import Eviction
from flexserv_operator.replica import Replica
from flexserv_operator.status import build
from flexserv_operator.summary import summarize

from tests.support.operator_values import NOW, desired, evicted, model

LOADED = Replica("Loaded", "Loaded", "", True, "c0ffee")
LOADING = Replica("Loading", "Loading", "weights 40%")
QUEUED = Replica("Pending", "Queued", "waits for its turn on this pod")
STANDBY = Replica("Standby", "Standby", "the next request loads it")
FAILED = Replica("Failed", "ModelNotFound", "no such model")
EVICTED = Replica("Evicted", "EvictedMemory", "evicted under memory pressure")
SILENT = Replica("Unreachable", "BackendUnreachable", "no answer")
STARTING = Replica("Pending", "BackendStarting", "the pod is starting")


@pytest.mark.parametrize(
    ("pinned", "replicas", "phase", "ready", "reason"),
    [
        (True, [], "Pending", False, "NoBackends"),
        (False, [], "Pending", False, "NoBackends"),
        (True, [LOADED, LOADED], "Loaded", True, "Loaded"),
        (True, [LOADED, LOADING], "Loading", False, "Loading"),
        (True, [LOADED, QUEUED], "Loading", False, "Queued"),
        (True, [FAILED, LOADING], "Loading", False, "Loading"),
        (True, [LOADED, FAILED], "Degraded", False, "ModelNotFound"),
        (True, [LOADED, SILENT], "Degraded", False, "BackendUnreachable"),
        (True, [FAILED, FAILED], "Failed", False, "ModelNotFound"),
        (True, [FAILED, EVICTED], "Failed", False, "ModelNotFound"),
        (True, [EVICTED], "Degraded", False, "EvictedMemory"),
        (True, [SILENT], "Pending", False, "BackendUnreachable"),
        (False, [STANDBY, STANDBY], "Standby", True, "Standby"),
        (False, [LOADED, STANDBY], "Loaded", True, "Loaded"),
        (False, [LOADING, STANDBY], "Loading", True, "Loading"),
        (False, [FAILED, STANDBY], "Failed", False, "ModelNotFound"),
        (False, [LOADED, FAILED], "Loaded", False, "ModelNotFound"),
        (False, [STANDBY, SILENT], "Standby", False, "BackendUnreachable"),
        (False, [SILENT], "Pending", False, "BackendUnreachable"),
        (True, [STARTING], "Pending", False, "BackendStarting"),
        (True, [LOADED, STARTING], "Loading", False, "BackendStarting"),
        (True, [FAILED, STARTING], "Loading", False, "ModelNotFound"),
        (False, [STARTING], "Pending", False, "BackendStarting"),
        (False, [STANDBY, STARTING], "Standby", True, "Standby"),
        (False, [LOADED, STARTING], "Loaded", True, "Loaded"),
    ],
)
def test_the_phase_sums_up_all_pods(pinned, replicas, phase, ready, reason):
    summary = summarize(pinned, {f"pod-{number}": replica for number, replica in enumerate(replicas)})
    assert (summary.phase, summary.ready, summary.reason) == (phase, ready, reason)


MODEL = model("a", generation=3)
CLAIM = desired(MODEL).claims[0]


def status_of(*replicas, before=None, now=NOW, **more):
    pods = {f"pod-{number}": replica for number, replica in enumerate(replicas)}
    return build(MODEL, before or {}, CLAIM, "flexserv", pods, now, **more)


def conditions(status):
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def test_a_loaded_model():
    status = status_of(LOADED, LOADED)
    assert (status["phase"], status["ready"], status["servedName"]) == ("Loaded", "2/2", "org/a")
    assert (status["commit"], status["observedGeneration"], status["backend"]) == ("c0ffee", 3, "flexserv")
    assert conditions(status) == {
        "Ready": "True",
        "Available": "True",
        "Reconciling": "False",
        "Stalled": "False",
    }
    assert all(condition["observedGeneration"] == 3 for condition in status["conditions"])


@pytest.mark.parametrize(
    ("replica", "expected"),
    [
        (LOADING, {"Ready": "False", "Available": "False", "Reconciling": "True", "Stalled": "False"}),
        (FAILED, {"Ready": "False", "Available": "False", "Reconciling": "False", "Stalled": "True"}),
        (EVICTED, {"Ready": "False", "Available": "False", "Reconciling": "True", "Stalled": "False"}),
    ],
)
def test_conditions_follow_kstatus(replica, expected):
    assert conditions(status_of(replica)) == expected


def test_a_conflict_is_stalled_and_says_why():
    status = build(MODEL, {}, None, "flexserv", {}, NOW, problem=("Conflict", "taken by old"))
    assert status["phase"] == "Failed"
    assert conditions(status)["Stalled"] == "True"
    assert status["conditions"][0]["message"] == "taken by old"


def test_a_model_in_conflict_is_on_none_of_the_pods():
    status = build(MODEL, {}, None, "flexserv", {}, NOW, problem=("Conflict", "taken by old"), pods=3)
    assert status["ready"] == "0/3"


def test_no_service_is_pending_backend_not_found():
    status = build(MODEL, {}, CLAIM, "flexserv", {}, NOW, problem=("BackendNotFound", "no Service"))
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Pending", "BackendNotFound")


def test_times_stay_while_what_they_are_about_stays():
    first = status_of(LOADING)
    later = status_of(Replica("Loading", "Loading", "weights 80%"), before=first, now=NOW + 100)
    assert later["replicas"][0]["since"] == first["replicas"][0]["since"]
    assert later["conditions"][0]["lastTransitionTime"] == first["conditions"][0]["lastTransitionTime"]
    done = status_of(LOADED, before=later, now=NOW + 200)
    assert done["replicas"][0]["since"] != first["replicas"][0]["since"]
    assert done["conditions"][0]["lastTransitionTime"] != first["conditions"][0]["lastTransitionTime"]


def test_the_same_situation_gives_the_same_status():
    first = status_of(FAILED, LOADED)
    assert status_of(FAILED, LOADED, before=first, now=NOW + 3600) == first


def test_of_many_pods_twenty_are_listed_and_those_in_trouble_are_among_them():
    status = build(
        MODEL,
        {},
        CLAIM,
        "flexserv",
        {**{f"pod-{number:02}": LOADED for number in range(30)}, "pod-99": FAILED},
        NOW,
    )
    assert len(status["replicas"]) == 20
    assert status["replicas"][-1]["pod"] == "pod-99"
    assert status["ready"] == "30/31"


def test_the_last_eviction_stays_on_record_after_the_pod_forgot_it():
    gone = Eviction.model_validate(evicted("a", "memory", count=2))
    first = status_of(Replica("Evicted", "EvictedMemory", "", eviction=gone))
    assert first["lastEviction"]["reason"] == "memory" and first["lastEviction"]["count"] == 2
    assert status_of(LOADED, before=first)["lastEviction"] == first["lastEviction"]


def test_words_alone_are_written_every_ten_seconds_at_most_and_facts_at_once():
    old, new = status_of(LOADING), status_of(Replica("Loading", "Loading", "weights 80%"))
    assert not worth_writing(old, old, 0, NOW)
    assert not worth_writing(old, new, NOW - 9, NOW)
    assert worth_writing(old, new, NOW - 10, NOW)
    assert worth_writing(old, status_of(LOADED), NOW - 1, NOW)


def test_a_merge_patch_removes_what_is_gone_and_leaves_alone_what_stays():
    old = {
        "phase": "Failed",
        "commit": "1",
        "quarantine": {"count": 1, "until": "x", "old": 1},
        "ready": "0/1",
    }
    new = {"phase": "Loaded", "quarantine": {"count": 2, "until": "x"}, "ready": "0/1"}
    assert merge_patch(old, new) == {
        "phase": "Loaded",
        "commit": None,
        "quarantine": {"count": 2, "old": None},
    }


def test_events_tell_transitions_only():
    loading, more, loaded = (
        status_of(LOADING),
        status_of(LOADING, before=status_of(LOADING)),
        status_of(LOADED),
    )
    assert transition({}, loading)[:2] == ("Normal", "Loading")
    assert transition(loading, more) is None
    assert transition(loading, loaded)[:2] == ("Normal", "Loaded")
    assert transition(loaded, status_of(FAILED)) == (
        "Warning",
        "ModelNotFound",
        "Failed, 0/1 pods: no such model",
    )
