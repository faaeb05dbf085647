"""Pods that hang, lie, refuse, die or are not who they were: nobody else suffers."""

import signal
import time
from itertools import pairwise

import pytest
from flexserv_operator.visits import HINDERED

from tests.support.fake_backend import FakeBackend, Refusal
from tests.support.operator_world import World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "1"}
POLL_TIMEOUT_S = 20
A, B = "127.0.0.2", "127.0.0.3"


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ({"hang": True}, "BackendUnreachable"),
        ({"lie": b"<html>"}, "BackendIncredible"),
        ({"lie": {"models": 3}}, "BackendIncredible"),
    ],
    ids=["hangs", "is no JSON", "breaks the contract"],
)
def test_a_bad_pod_is_shown_and_does_not_hold_up_the_good_one(world: World, trouble: dict, reason: str):
    bad = world.add_pod("bad", A, **trouble)
    good = world.add_pod("good", B)
    world.start_operator(tick_seconds="1", poll_timeout_seconds=str(POLL_TIMEOUT_S))
    world.apply("chat", model="org/chat")
    world.soon(lambda: good.resident_ids() == ["org/chat"])
    world.apply("more", model="org/more")
    world.soon(lambda: good.resident_ids() == ["org/chat", "org/more"], timeout=POLL_TIMEOUT_S)
    status = world.reaches("chat", "Degraded", reason, timeout=3 * POLL_TIMEOUT_S)
    assert status["ready"] == "1/2"
    assert not [call for call in bad.calls if call.method == "POST"]


def test_a_pod_that_comes_to_its_senses_is_served(world: World):
    backend = world.add_pod("pod-a", A, lie=[])
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Pending", "BackendIncredible")
    backend.lie = None
    world.reaches("chat", "Loaded")


def test_a_pod_that_refuses_everything_is_asked_less_and_less(world: World):
    backend = world.add_pod("pod-a", A, refuse=Refusal(401, "invalid_api_key", "admin token needed"))
    # A change is told at once, whatever is due: there is none after the start.
    world.apply("chat", model="org/chat")
    world.start_operator(**FAST)
    status = world.reaches("chat", "Failed", "BackendRefused")
    assert "admin token needed" in status["replicas"][0]["message"]
    world.soon(lambda: len(backend.posts("")) >= 4)
    posts = [call.at for call in backend.posts("")]
    waits = [later - sooner for sooner, later in pairwise(posts)]
    assert all(wait >= HINDERED.wait(number) for number, wait in enumerate(waits[:3], 1)), waits
    backend.refuse = None
    world.reaches("chat", "Loaded")


def test_a_model_whose_settings_the_backend_refuses_disturbs_nobody_and_is_tried_again_once_edited(
    world: World,
):
    unacceptable = {"org/odd": "'tokenize' cannot be set", "org/newer": "is not a known field; remove it"}
    backend = world.add_pod("pod-a", A, unacceptable=unacceptable)
    world.start_operator(**FAST)
    world.apply("newer", model="org/newer")
    world.reaches("newer", "Failed", "BackendOutdated")
    assert "upgrade the backend" in world.condition("newer", "Ready")["message"]
    assert world.condition("newer", "Stalled")["status"] == "False"
    world.apply("odd", model="org/odd", residency="OnDemand", chatTemplateKwargs={"tokenize": False})
    status = world.reaches("odd", "Failed", "SettingsRefused")
    assert status["replicas"][0]["message"] == "chat_template_kwargs: 'tokenize' cannot be set"
    assert world.condition("odd", "Stalled")["status"] == "True"

    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    world.soon(lambda: backend.is_synced)
    assert [key[1] for key in backend.declared] == ["org/chat"]

    posts = len(backend.posts(""))
    looks = len(backend.calls)
    world.soon(lambda: len(backend.calls) >= looks + 4)
    assert len(backend.posts("")) == posts

    backend.unacceptable = {}
    world.edit("odd", chatTemplateKwargs=None)
    world.reaches("odd", "Standby")
    assert {key[1] for key in backend.declared} == {"org/chat", "org/odd"}
    backend.restart()
    world.reaches("newer", "Loaded")


def test_a_pod_without_an_address_is_waited_for_in_peace(world: World):
    container = {"name": "backend", "image": "none"}
    body = {"metadata": {"name": "new", "labels": {"app": "flexserv"}}, "spec": {"containers": [container]}}
    world.plane.call("POST", f"{world.core}/pods", body)
    operator = world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    status = world.reaches("chat", "Pending", "BackendStarting")
    assert status["ready"] == "0/1"

    def cycles() -> float:
        return operator.metric("flexserv_operator_cycle_duration_seconds_count")

    begin, before = time.monotonic(), cycles()
    world.soon(lambda: cycles() >= before + 5)
    assert time.monotonic() - begin > 1.5


def test_an_address_that_another_pod_took_over_is_sent_nothing(world: World):
    world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    successor = world.fleet.add(A, FakeBackend("uid-of-a-pod-that-kubernetes-has-not-shown-yet"))
    world.reaches("chat", "Pending", "BackendIncredible")
    assert [call.method for call in successor.calls].count("POST") == 0


def test_a_model_that_kills_its_container_is_kept_away_and_the_others_come_back(world: World):
    backend = world.add_pod("pod-a", A)
    operator = world.start_operator(**FAST)
    world.apply("good", model="org/good")
    world.reaches("good", "Loaded")
    backend.load_seconds = 3600
    world.apply("deadly", model="org/deadly", priority=100)
    world.soon(lambda: backend.loads)

    backend.restart()
    backend.load_seconds = 0.05
    status = world.reaches("deadly", "Failed", "CrashedWhileLoading")
    assert status["quarantine"]["count"] == 1
    world.reaches("good", "Loaded")
    world.soon(lambda: backend.declared[("serve", "org/deadly", None)].get("blocked_until"))
    assert operator.metric("flexserv_operator_quarantined_models") == 1

    operator.stop(signal.SIGKILL)
    backend.restart()
    world.start_operator(**FAST)
    world.soon(lambda: backend.resident_ids() == ["org/good"])
    world.soon(lambda: backend.is_synced)
    assert world.status("deadly")["quarantine"] == status["quarantine"]
    deadly = [call for call in backend.posts("models/load") if call.body["model_id"] == "org/deadly"]
    assert len(deadly) == 1
