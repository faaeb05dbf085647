"""FlexServModels against a real API server, with the real operator and backends that speak the contract."""

import pytest

from tests.support.operator_world import World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "5"}
A, B = "127.0.0.2", "127.0.0.3"


def test_a_pinned_model_is_loaded_on_every_pod_and_unloaded_when_it_is_deleted(world: World):
    backends = [world.add_pod("pod-a", A), world.add_pod("pod-b", B)]
    world.start_operator()
    world.apply("warm-up", model="org/warm-up")
    world.reaches("warm-up", "Loaded")

    world.apply("chat", model="org/chat", servedName="assistant")
    status = world.reaches("chat", "Loaded", "Loaded")
    assert (status["ready"], status["servedName"], status["backend"]) == ("2/2", "assistant", "flexserv")
    assert [replica["state"] for replica in status["replicas"]] == ["Loaded", "Loaded"]
    assert status["commit"] == "c0ffee"

    world.delete("chat")
    world.soon(lambda: all(backend.resident_ids() == ["org/warm-up"] for backend in backends))
    for backend in backends:
        kinds = [call.path.rpartition("/")[2] for call in backend.calls if call.method == "POST"]
        assert kinds[-2:] == ["declared", "unload"]


def test_objects_bear_no_finalizer_and_no_annotation_and_events_tell_the_transitions(world: World):
    world.add_pod("pod-a", A)
    world.start_operator()
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    for path in (f"{world.models}/chat", f"{world.core}/pods/pod-a", f"{world.core}/services/flexserv"):
        metadata = world.plane.call("GET", path)["metadata"]
        assert "finalizers" not in metadata and "annotations" not in metadata
    world.soon(lambda: len(world.events("chat")) == 2)
    told = [(event["type"], event["reason"]) for event in world.events("chat")]
    assert told == [("Normal", "Loading"), ("Normal", "Loaded")]
    world.delete("chat")
    assert not world.exists("chat")


def test_a_change_counts_as_observed_only_when_the_pod_has_been_told(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(tick_seconds="1", poll_timeout_seconds="5")
    world.apply("chat", model="org/chat", servedName="before")
    world.reaches("chat", "Loaded")
    backend.slowness = 1.0
    world.edit("chat", servedName="after")
    world.soon(lambda: world.condition("chat", "Ready")["observedGeneration"] == 2)
    assert backend.declared[("serve", "org/chat", None)]["served_name"] == "after"


def test_a_restarted_operator_waits_for_a_slow_pod_before_it_calls_anything_unreachable(world: World):
    backend = world.add_pod("pod-a", A)
    operator = world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    operator.stop()
    backend.slowness = 1.5
    version, told = world.get("chat")["metadata"]["resourceVersion"], len(world.events("chat"))
    looks = len(backend.calls)
    world.start_operator(tick_seconds="1", poll_timeout_seconds="5")
    world.soon(lambda: len(backend.calls) >= looks + 3)
    assert world.get("chat")["metadata"]["resourceVersion"] == version
    assert len(world.events("chat")) == told


def test_nothing_is_written_when_nothing_changes(world: World):
    backend = world.add_pod("pod-a", A, fail_with={"org/missing": "model_not_found"})
    operator = world.start_operator(**FAST)
    for name in ("chat", "missing"):
        world.apply(name, model=f"org/{name}")
    world.apply("rare", model="org/rare", residency="OnDemand")
    world.reaches("chat", "Loaded")
    world.reaches("missing", "Failed", "ModelNotFound")
    world.reaches("rare", "Standby")
    looks = len(backend.calls)
    before = [world.get(name)["metadata"]["resourceVersion"] for name in ("chat", "missing", "rare")]
    world.soon(lambda: len(backend.calls) >= looks + 5)
    assert [world.get(name)["metadata"]["resourceVersion"] for name in ("chat", "missing", "rare")] == before
    assert {call.method for call in backend.calls[looks:]} == {"GET"}
    assert operator.metric('flexserv_operator_models{phase="Failed"}') == 1


def test_an_on_demand_model_waits_for_a_request_and_may_leave_again(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("rare", model="org/rare", residency="OnDemand", idleTimeoutSeconds=60)
    status = world.reaches("rare", "Standby", "Standby")
    assert status["ready"] == "0/1"
    assert world.condition("rare", "Ready")["status"] == "True"
    assert not backend.posts("/load")

    backend.serve_request("org/rare")
    world.reaches("rare", "Loaded")
    backend.evict("org/rare", "idle")
    status = world.reaches("rare", "Standby")
    assert status["lastEviction"]["reason"] == "idle"
    assert not backend.posts("/load")

    world.edit("rare", residency="Pinned", idleTimeoutSeconds=None)
    world.reaches("rare", "Loaded")


def test_a_missing_model_fails_and_disturbs_nobody(world: World):
    world.add_pod("pod-a", A, fail_with={"org/missing": "model_not_found"})
    world.start_operator(**FAST)
    world.apply("missing", model="org/missing", priority=100)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    status = world.reaches("missing", "Failed", "ModelNotFound")
    assert "org/missing" in status["replicas"][0]["message"]
    assert world.condition("missing", "Stalled")["status"] == "True"
    warnings = [event for event in world.events("missing") if event["type"] == "Warning"]
    assert [event["reason"] for event in warnings] == ["ModelNotFound"]


@pytest.mark.parametrize("seen_by_kubernetes", [True, False], ids=["pod event", "no event"])
def test_a_restarted_container_gets_its_models_back(world: World, seen_by_kubernetes: bool):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**({} if seen_by_kubernetes else FAST))
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    world.soon(lambda: backend.is_synced)
    backend.restart()
    if seen_by_kubernetes:
        statuses = [{"name": "backend", "containerID": "x://2", "image": "", "imageID": "", "ready": False}]
        world.set_pod_status("pod-a", containerStatuses=[{**statuses[0], "restartCount": 1}])
    world.soon(lambda: backend.resident_ids() == ["org/chat"] and backend.is_synced)
    assert backend.declared


def test_a_new_pod_is_synced_only_after_its_pinned_models_are_in_or_have_failed(world: World):
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.apply("missing", model="org/missing")
    world.reaches("chat", "Pending", "NoBackends")
    backend = world.add_pod("pod-a", A, load_seconds=1, fail_with={"org/missing": "model_not_found"})
    world.soon(lambda: backend.is_synced)
    assert backend.resident_ids() == ["org/chat"] and backend.failed
    posts = [call.path.rpartition("/")[2] for call in backend.calls if call.method == "POST"]
    assert posts == ["declared", "load", "load", "synced"]
    assert world.reaches("chat", "Loaded")["ready"] == "1/1"


def test_a_deleted_pod_is_forgotten(world: World):
    world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    world.delete_pod("pod-a")
    status = world.reaches("chat", "Pending", "NoBackends")
    assert (status["ready"], status["replicas"]) == ("0/0", [])


def test_a_new_revision_replaces_the_old_one_without_a_gap(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat", revision="v1")
    world.reaches("chat", "Loaded")
    world.edit("chat", revision="v2")
    world.reaches("chat", "Loaded")
    world.soon(lambda: backend.resident_ids() == ["org/chat@v2"])
    after = backend.posts("models/load")[-1].at
    assert [call.body["revision"] for call in backend.posts("unload")] == ["v1"]
    assert backend.posts("unload")[0].at > after


def test_a_live_setting_changes_without_a_load(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    loads = len(backend.posts("models/load"))
    world.edit("chat", priority=7)
    world.reaches("chat", "Loaded")
    (settings,) = backend.residents.values()
    world.soon(lambda: settings["priority"] == 7)
    assert len(backend.posts("models/load")) == loads


def test_the_more_important_model_displaces_the_less_important_one_and_they_settle(world: World):
    backend = world.add_pod("pod-a", A, capacity=100, sizes={"org/low": 60, "org/high": 60})
    world.start_operator(**FAST)
    world.apply("low", model="org/low")
    world.reaches("low", "Loaded")
    world.apply("high", model="org/high", priority=10)
    world.reaches("high", "Loaded")
    world.reaches("low", "Degraded", "Displaced")
    looks = len(backend.calls)
    world.soon(lambda: len(backend.calls) >= looks + 3)
    assert backend.resident_ids() == ["org/high"]


def test_a_model_evicted_for_memory_is_degraded_and_not_loaded_at_once(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    backend.evict("org/chat", "memory")
    status = world.reaches("chat", "Degraded", "EvictedMemory")
    assert status["lastEviction"]["reason"] == "memory"
    assert len(backend.posts("models/load")) == 1


def test_a_load_shows_its_progress(world: World):
    backend = world.add_pod("pod-a", A, load_seconds=3600)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loading", "Loading")
    assert world.condition("chat", "Reconciling")["status"] == "True"
    backend.load_seconds = 0.05
    world.reaches("chat", "Loaded")


def test_a_load_that_takes_too_long_is_aborted(world: World):
    backend = world.add_pod("pod-a", A, load_seconds=3600)
    world.start_operator(**FAST)
    world.apply("slow", model="org/slow", loadTimeoutSeconds=1)
    world.reaches("slow", "Failed", "LoadTimeout")
    assert not backend.loads


def test_a_load_time_setting_that_is_taken_back_loads_the_model_with_the_backends_default(world: World):
    backend = world.add_pod("pod-a", A, defaults={"dtype": "float32", "quantization": "bnb-4bit"})
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat", dtype="bfloat16", quantization="none")
    world.reaches("chat", "Loaded")

    def in_force() -> tuple[str, str | None]:
        (resident,) = backend.residents.values()
        return resident["settings"]["dtype"], resident["settings"]["quantization"]

    assert in_force() == ("bfloat16", None)
    world.edit("chat", dtype=None)
    world.reaches("chat", "Loaded")
    world.soon(lambda: in_force() == ("float32", None))
    world.edit("chat", quantization=None)
    world.reaches("chat", "Loaded")
    world.soon(lambda: in_force() == ("float32", "bnb-4bit"))
    world.edit("chat", dtype="float32")
    world.reaches("chat", "Loaded")
    assert backend.begun["org/chat"] == 3
