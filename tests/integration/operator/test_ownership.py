"""Whose a model is: through deletions, restarts of the operator, and several FlexServModels or operators."""

import signal
from collections.abc import Callable

from tests.support.operator_world import World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "1"}
FASTER = {"tick_seconds": "0.3", "poll_timeout_seconds": "1"}
A, B = "127.0.0.2", "127.0.0.3"


def test_an_operator_that_was_away_rebuilds_everything_from_what_it_finds(world: World):
    backend = world.add_pod("pod-a", A)
    first = world.start_operator(**FAST)
    for name in ("stays", "goes"):
        world.apply(name, model=f"org/{name}")
        world.reaches(name, "Loaded")
    backend._start(("serve", "org/of-somebody-else", None), {})
    first.stop(signal.SIGKILL)

    world.delete("goes")
    world.apply("new", model="org/new")
    loads = len(backend.posts("models/load"))
    world.start_operator(**FAST)
    world.reaches("new", "Loaded")
    world.soon(lambda: backend.resident_ids() == ["org/new", "org/of-somebody-else", "org/stays"])
    assert [call.body["model_id"] for call in backend.posts("models/load")[loads:]] == ["org/new"]


def test_the_last_flexservmodel_of_a_model_takes_it_along(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("one", model="org/chat", residency="OnDemand")
    world.apply("two", model="org/chat", priority=5)
    world.reaches("one", "Loaded")
    world.reaches("two", "Loaded")
    (settings,) = backend.residents.values()
    assert (settings["pin"], settings["priority"]) == (True, 5)

    world.delete("two")
    world.soon(lambda: settings["pin"] is False)
    assert backend.resident_ids() == ["org/chat"]
    world.delete("one")
    world.soon(lambda: backend.resident_ids() == [])


def test_the_younger_of_two_in_conflict_takes_over_when_the_older_goes(world: World):
    backend = world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("a-older", model="org/one", servedName="chat")
    world.reaches("a-older", "Loaded")
    world.apply("b-younger", model="org/two", servedName="chat")
    world.reaches("b-younger", "Failed", "Conflict")
    assert "a-older" in world.condition("b-younger", "Stalled")["message"]
    assert backend.resident_ids() == ["org/one"]
    world.delete("a-older")
    world.reaches("b-younger", "Loaded")
    world.soon(lambda: backend.resident_ids() == ["org/two"])


def test_a_service_that_does_not_exist_is_named_until_it_does(world: World):
    world.plane.call("DELETE", f"{world.core}/services/flexserv")
    world.add_pod("pod-a", A)
    world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.apply("stray", model="org/stray", backendRef={"name": "nowhere"})
    world.reaches("chat", "Pending", "BackendNotFound")
    assert "nowhere" in world.reaches("stray", "Pending", "BackendNotFound")["conditions"][0]["message"]
    world.create_service()
    world.reaches("chat", "Loaded")
    assert world.status("stray")["phase"] == "Pending"


def test_two_operators_in_one_namespace_each_have_their_own_backend(world: World):
    world.create_service("other")
    backend = world.add_pod("pod-a", A)
    other = world.add_pod("pod-b", B)
    world.plane.call("PATCH", f"{world.core}/pods/pod-b", {"metadata": {"labels": {"app": "other"}}})
    world.start_operator(**FAST)
    world.start_operator(backend_service="other", adopt_unreferenced="false", **FAST)
    world.apply("mine", model="org/mine")
    world.apply("theirs", model="org/theirs", backendRef={"name": "other"})
    world.reaches("mine", "Loaded")
    assert world.reaches("theirs", "Loaded")["backend"] == "other"
    assert (backend.resident_ids(), other.resident_ids()) == (["org/mine"], ["org/theirs"])
    world.delete("theirs")
    world.soon(lambda: other.resident_ids() == [])
    assert backend.resident_ids() == ["org/mine"]


def test_of_two_operators_that_adopt_the_first_has_the_models_until_its_service_is_gone(world: World):
    world.create_service("other")
    backend, other = world.add_pod("pod-a", A), world.add_pod("pod-b", B)
    world.plane.call("PATCH", f"{world.core}/pods/pod-b", {"metadata": {"labels": {"app": "other"}}})
    world.apply("early", model="org/early")
    first = world.start_operator(**FASTER)
    assert world.reaches("early", "Loaded")["backend"] == "flexserv"
    world.start_operator(backend_service="other", **FASTER)
    world.apply("theirs", model="org/theirs", backendRef={"name": "other"})
    world.reaches("theirs", "Loaded")
    world.apply("late", model="org/late")
    assert world.reaches("late", "Loaded")["backend"] == "flexserv"

    versions = {name: world.get(name)["metadata"]["resourceVersion"] for name in ("early", "late")}
    looks = [len(backend.calls), len(other.calls)]
    world.soon(lambda: len(backend.calls) >= looks[0] + 3 and len(other.calls) >= looks[1] + 3)
    assert versions == {name: world.get(name)["metadata"]["resourceVersion"] for name in versions}
    assert dict(other.begun) == {"org/theirs": 1}

    first.stop(signal.SIGKILL)
    looks = [0, len(other.calls)]
    world.soon(lambda: len(other.calls) >= looks[1] + 3)
    assert other.resident_ids() == ["org/theirs"]
    world.plane.call("DELETE", f"{world.core}/services/flexserv")
    world.soon(lambda: world.status("late")["backend"] == "other")
    for name in ("early", "late"):
        assert world.reaches(name, "Loaded")["backend"] == "other"
    assert other.resident_ids() == ["org/early", "org/late", "org/theirs"]

    world.create_service()
    world.start_operator(**FASTER)
    world.soon(lambda: backend.resident_ids() == [])
    assert world.status("late")["backend"] == "other"
    world.plane.call("PATCH", f"{world.models}/late/status", {"status": {"backend": "flexserv"}})
    world.soon(lambda: other.resident_ids() == ["org/early", "org/theirs"])
    world.soon(lambda: backend.resident_ids() == ["org/late"])


def test_two_operators_that_want_a_model_at_once_settle_it_and_one_of_them_hands_it_over(world: World):
    world.create_service("other")
    backends = {"flexserv": world.add_pod("pod-a", A), "other": world.add_pod("pod-b", B)}
    world.plane.call("PATCH", f"{world.core}/pods/pod-b", {"metadata": {"labels": {"app": "other"}}})
    operators = {name: world.start_operator(backend_service=name, **FASTER) for name in backends}
    for backend in backends.values():
        world.soon(lambda backend=backend: backend.is_synced)
    world.apply("chat", model="org/chat")
    winner = world.reaches("chat", "Loaded")["backend"]
    (loser,) = backends.keys() - {winner}
    world.soon(lambda: backends[loser].resident_ids() == [] and backends[winner].resident_ids())
    assert world.status("chat")["backend"] == winner

    operators[winner].stop()
    world.start_operator(backend_service=winner, adopt_unreferenced="false", **FASTER)
    world.soon(lambda: world.status("chat")["backend"] == loser)
    world.reaches("chat", "Loaded")
    world.soon(lambda: backends[winner].resident_ids() == [])
    assert backends[loser].resident_ids() == ["org/chat"]


def test_two_operators_in_two_namespaces_know_nothing_of_each_other(make_world: Callable[[], World]):
    one, two = make_world(), make_world()
    backends = [world.add_pod("pod-a", A) for world in (one, two)]
    for world in (one, two):
        world.start_operator(**FAST)
        world.apply("chat", model="org/chat")
    for world in (one, two):
        world.reaches("chat", "Loaded")
    # A model in this pod that belongs to the other namespace, as if the two shared it.
    backends[0].put("org/theirs", f"{two.namespace}/theirs#uid-of-a-deleted-one")
    one.delete("chat")
    one.soon(lambda: backends[0].resident_ids() == ["org/theirs"])
    assert backends[1].resident_ids() == ["org/chat"]
    assert two.status("chat")["phase"] == "Loaded"


def test_a_flexservmodel_made_anew_while_the_operator_was_away_keeps_its_model(world: World):
    backend = world.add_pod("pod-a", A)
    first = world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")
    first.stop(signal.SIGKILL)
    world.delete("chat")
    uid = world.apply("chat", model="org/chat")["metadata"]["uid"]
    world.start_operator(**FAST)
    world.reaches("chat", "Loaded")
    (settings,) = backend.residents.values()
    world.soon(lambda: settings["owner"] == f"{world.namespace}/chat#{uid}")
    assert backend.begun["org/chat"] == 1 and not backend.departures


def test_models_outlive_any_number_of_operators(world: World):
    backend = world.add_pod("pod-a", A)
    world.apply("chat", model="org/chat")
    for _ in range(3):
        operator = world.start_operator(**FAST)
        looks = len(backend.calls)
        world.soon(lambda looks=looks: len(backend.calls) >= looks + 3)
        operator.stop()
    assert backend.resident_ids() == ["org/chat"]
    assert backend.begun["org/chat"] == 1 and not backend.departures
