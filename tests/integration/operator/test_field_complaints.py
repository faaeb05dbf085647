"""What people complained about elsewhere, one test for each complaint. README.md beside this file says who
did, and where the complaints that are not here have their test."""

import signal
from typing import Any

import pytest
from flexserv_operator.visits import HINDERED

from tests.support.fake_backend import Refusal
from tests.support.operator_world import World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "1"}
A, B, C = "127.0.0.2", "127.0.0.3", "127.0.0.4"


def ready(world: World, name: str) -> str:
    status: str = world.condition(name, "Ready")["status"]
    return status


def container(*, started: bool, waiting: str | None = None) -> dict[str, Any]:
    """A container's status as the kubelet writes it."""
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    fixed = {"name": "backend", "image": "", "imageID": "", "ready": False, "restartCount": 3}
    return {**fixed, "started": started, "state": state}


def test_it_says_ready_while_the_pod_is_in_a_crash_loop(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    backend.hang = True
    statuses = [container(started=False, waiting="CrashLoopBackOff")]
    world.set_pod_status("pod-a", containerStatuses=statuses)
    world.reaches("chat", "Pending", "BackendUnreachable")
    assert ready(world, "chat") == "False"
    assert "CrashLoopBackOff" in world.condition("chat", "Ready")["message"]


def test_it_calls_a_pod_that_is_only_starting_unreachable(world: World):
    backend = world.add_pod("pod-a", A, hang=True)
    world.set_pod_status("pod-a", containerStatuses=[container(started=False)])
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Pending", "BackendStarting")
    backend.hang = False
    world.reaches("chat", "Loaded")
    assert not [event for event in world.events("chat") if event["type"] == "Warning"]


def test_it_says_running_although_the_load_failed_and_the_reason_is_only_in_a_log(world: World):
    world.add_pod("pod-a", A, fail_with={"org/gated": "model_gated"})
    world.start_operator(**FAST)
    world.apply("gated", model="org/gated")
    status = world.reaches("gated", "Failed", "ModelGated")
    assert (status["ready"], ready(world, "gated")) == ("0/1", "False")
    assert "org/gated: model_gated" in world.condition("gated", "Ready")["message"]
    assert "org/gated: model_gated" in status["replicas"][0]["message"]
    world.soon(lambda: any(event["reason"] == "ModelGated" for event in world.events("gated")))


def test_it_tries_for_ever_without_saying_failed_or_gives_up_for_ever(world: World):
    backend = world.add_pod("pod-a", A, fail_with={"org/missing": "model_not_found"})
    world.start_operator(**FAST)
    world.apply("missing", model="org/missing")
    world.reaches("missing", "Failed", "ModelNotFound")
    looks = len(backend.calls)
    world.soon(lambda: len(backend.calls) >= looks + 3)
    assert backend.begun["org/missing"] == 1
    backend.fail_with = {}
    world.edit("missing", priority=1)
    world.reaches("missing", "Loaded")


def test_it_gives_all_its_attention_to_one_bad_pod(world: World):
    bad = world.add_pod("bad", A, refuse=Refusal(500, "load_failed", "out of order"))
    good = world.add_pod("good", B)
    # A change is told at once, whatever is due: there is none after the start.
    for name in ("one", "two"):
        world.apply(name, model=f"org/{name}")
    world.start_operator(**FAST)
    world.soon(lambda: good.resident_ids() == ["org/one", "org/two"])
    world.soon(lambda: len(bad.posts("")) >= 3)
    posts = [call.at for call in bad.posts("")]
    assert posts[1] - posts[0] >= HINDERED.wait(1) and posts[2] - posts[1] >= HINDERED.wait(2)


def test_a_model_vanished_and_the_operator_did_not_notice(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    world.soon(lambda: backend.is_synced)
    looks = len(backend.calls)
    world.soon(lambda: len(backend.calls) >= looks + 4)
    backend.evict("org/chat", "idle")
    world.soon(lambda: backend.resident_ids() == ["org/chat"])


def test_nobody_can_tell_why_a_model_was_unloaded(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    backend.evict("org/chat", "memory")
    status = world.reaches("chat", "Degraded", "EvictedMemory")
    assert {key: status["lastEviction"][key] for key in ("pod", "reason", "count")} == {
        "pod": "pod-a",
        "reason": "memory",
        "count": 1,
    }
    assert "memory pressure, tried again at" in world.condition("chat", "Ready")["message"]
    world.soon(
        lambda: [e["type"] for e in world.events("chat") if e["reason"] == "EvictedMemory"] == ["Warning"]
    )


def test_operator_and_servers_died_together_and_it_still_says_ready(world: World):
    backends = [world.add_pod("pod-a", A), world.add_pod("pod-b", B)]
    operator = world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    operator.stop(signal.SIGKILL)
    for backend in backends:
        backend.load_seconds = 3600
        backend.restart()
    world.start_operator(**FAST)
    world.reaches("chat", "Loading")
    assert (ready(world, "chat"), world.status("chat")["ready"]) == ("False", "0/2")
    for backend in backends:
        backend.load_seconds = 0.05
    assert world.reaches("chat", "Loaded")["ready"] == "2/2"


def test_after_restarts_a_random_number_of_replicas_has_the_model(world: World):
    backends = [world.add_pod(name, at) for name, at in (("pod-a", A), ("pod-b", B), ("pod-c", C))]
    world.start_operator(**FAST)
    names = ["one", "two", "three"]
    for name in names:
        world.apply(name, model=f"org/{name}")
    for name in names:
        world.reaches(name, "Loaded")
    for backend in backends:
        backend.restart()
    everything = sorted(f"org/{name}" for name in names)
    world.soon(lambda: [b.resident_ids() for b in backends] == [everything] * 3)
    for name in names:
        assert world.reaches(name, "Loaded")["ready"] == "3/3"


def test_of_two_models_made_at_once_only_one_is_loaded(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    for number in range(5):
        world.apply(f"m{number}", model=f"org/m{number}")
    for number in range(5):
        world.reaches(f"m{number}", "Loaded")
    assert set(backend.begun.values()) == {1}


def test_a_model_in_some_phase_cannot_be_deleted(world: World):
    backend = world.add_pod("pod-a", A, fail_with={"org/failed": "model_not_found"}, deadly={"org/deadly"})
    world.start_operator(**FAST)
    specs: dict[str, dict[str, Any]] = {
        "loaded": {"servedName": "chat"},
        "failed": {},
        "standby": {"residency": "OnDemand"},
        "evicted": {},
        "stray": {"backendRef": {"name": "nowhere"}},
        "z-conflict": {"servedName": "chat"},
    }
    for name, spec in specs.items():
        world.apply(name, model=f"org/{name}", **spec)
    for name in ("loaded", "evicted"):
        world.reaches(name, "Loaded")
    backend.evict("org/evicted", "memory")
    world.reaches("failed", "Failed", "ModelNotFound")
    world.reaches("standby", "Standby")
    world.reaches("evicted", "Degraded")
    world.reaches("stray", "Pending", "BackendNotFound")
    world.reaches("z-conflict", "Failed", "Conflict")
    backend.load_seconds = 3600
    world.apply("loading", model="org/loading")
    world.reaches("loading", "Loading")
    world.apply("queued", model="org/queued")
    world.reaches("queued", "Loading", "Queued")

    for name in (*specs, "loading", "queued"):
        world.delete(name)
        assert not world.exists(name)
    world.soon(lambda: backend.resident_ids() == [] and not backend.loads)
    world.soon(lambda: backend.declared == {})


def test_a_model_cannot_be_deleted_while_its_server_is_away(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    backend.hang = True
    world.delete("chat")
    assert not world.exists("chat")
    backend.hang = False
    world.soon(lambda: backend.resident_ids() == [])


def test_models_and_their_namespace_hang_when_the_operator_was_removed_first(world: World):
    backend = world.add_pod("pod-a", A)
    operator = world.start_operator(**FAST)
    for name in ("one", "two"):
        world.apply(name, model=f"org/{name}")
        world.reaches(name, "Loaded")
    operator.stop()
    world.plane.call("DELETE", world.models)
    assert world.plane.call("GET", world.models)["items"] == []
    assert backend.resident_ids() == ["org/one", "org/two"]
    world.start_operator(**FAST)
    world.soon(lambda: backend.resident_ids() == [])


def test_two_operators_that_overlap_freeze_each_other(world: World):
    backend = world.add_pod("pod-a", A)
    old = world.start_operator(**FAST)
    world.apply("one", model="org/one")
    world.reaches("one", "Loaded")
    world.start_operator(**FAST)
    world.apply("two", model="org/two")
    world.reaches("two", "Loaded")
    old.stop(signal.SIGKILL)
    world.apply("three", model="org/three")
    world.reaches("three", "Loaded")
    assert dict(backend.begun) == {"org/one": 1, "org/two": 1, "org/three": 1}


@pytest.mark.parametrize("reported", ["CrashedWhileLoading", "OOMKilled"])
def test_one_model_keeps_a_pod_in_a_crash_loop(world: World, reported: str):
    backend = world.add_pod("pod-a", A, deadly={"org/deadly"})
    if reported == "OOMKilled":
        ended = {"exitCode": 137, "reason": "OOMKilled"}
        statuses = [{**container(started=True), "lastState": {"terminated": ended}}]
        world.set_pod_status("pod-a", containerStatuses=statuses)
    world.start_operator(**FAST)
    world.apply("deadly", model="org/deadly", priority=9)
    world.apply("good", model="org/good")
    world.reaches("good", "Loaded")
    status = world.reaches("deadly", "Failed", reported)
    assert status["quarantine"]["count"] == 1
    looks = len(backend.calls)
    world.soon(lambda: len(backend.calls) >= looks + 3)
    assert (backend.begun["org/deadly"], backend.instances) == (1, 2)

    backend.deadly = set()
    world.edit("deadly", dtype="bfloat16")
    world.reaches("deadly", "Loaded")
    world.soon(lambda: "quarantine" not in world.status("deadly"))
