"""Everything goes wrong at random, then nothing any more: in the end all is as it should be."""

import random
import signal
from collections.abc import Callable

import pytest

from tests.support.fake_backend import FakeBackend, Refusal
from tests.support.operator_world import World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "1"}
ADDRESSES = {"pod-a": "127.0.0.2", "pod-b": "127.0.0.3", "pod-c": "127.0.0.4"}
STEPS = 14


def hang(backend: FakeBackend) -> None:
    backend.hang = True


def dawdle(backend: FakeBackend) -> None:
    backend.slowness = 0.8


def babble(backend: FakeBackend) -> None:
    backend.lie = b'{"instance_id": "'


def mistype(backend: FakeBackend) -> None:
    backend.lie = {**backend.inventory(), "models": {"org/a": True}}


def impersonate(backend: FakeBackend) -> None:
    backend.lie = {**backend.inventory(), "pod_uid": "of-another-pod", "models": []}


def refuse(backend: FakeBackend) -> None:
    backend.refuse = Refusal(503, "draining", "going")


def restart(backend: FakeBackend) -> None:
    backend.restart()


def evict(backend: FakeBackend) -> None:
    for name in backend.resident_ids():
        backend.evict(name, "manual")


def soothe(backend: FakeBackend) -> None:
    backend.hang, backend.lie, backend.refuse, backend.slowness = False, None, None, 0.0


TROUBLES: list[Callable[[FakeBackend], None]] = [
    hang, dawdle, babble, mistype, impersonate, refuse, restart, evict, restart, evict,
]  # fmt: skip


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [1, 2])
def test_after_any_storm_every_model_is_where_it_belongs(world: World, seed: int):
    chance = random.Random(seed)
    # Loads take no time: a container that dies during one would put its model into quarantine, rightly.
    backends = [world.add_pod(name, at, load_seconds=0.0) for name, at in ADDRESSES.items()]
    operator = world.start_operator(**FAST)
    for number in range(4):
        world.apply(f"m{number}", model=f"org/m{number}", priority=number)
    world.apply("rare", model="org/rare", residency="OnDemand")

    for step in range(STEPS):
        trouble, backend = chance.choice(TROUBLES), chance.choice(backends)
        print(f"step {step}: {trouble.__name__} {backend.pod_uid}")
        trouble(backend)
        if chance.random() < 0.4:
            soothe(chance.choice(backends))
        if chance.random() < 0.2:
            operator.stop(signal.SIGKILL)
            operator = world.start_operator(**FAST)
        if step == STEPS // 2:
            world.delete("m0")
            world.apply("late", model="org/late", priority=99)
        if step == STEPS - 2:
            backend.put("org/left", f"{world.namespace}/left#uid-of-a-deleted-one")
        looks = sum(len(backend.calls) for backend in backends)
        world.soon(lambda looks=looks: sum(len(b.calls) for b in backends) >= looks + 4, timeout=60)

    for backend in backends:
        soothe(backend)
    wanted = ["org/late", "org/m1", "org/m2", "org/m3"]
    world.soon(lambda: [b.resident_ids() for b in backends] == [wanted] * 3, timeout=90)
    world.soon(lambda: all(backend.is_synced for backend in backends))
    for name in ("m1", "m2", "m3", "late"):
        assert world.reaches(name, "Loaded", timeout=60)["ready"] == "3/3"
    world.reaches("rare", "Standby", timeout=60)
    assert operator.get(operator.health_port, "/healthz").status_code == 200
    assert "cycle failed" not in operator.log.read_text()
    for backend in backends:
        instances = {call.instance for call in backend.calls if call.method == "POST"}
        assert instances <= {f"{backend.pod_uid}-{number + 1}" for number in range(backend.instances)}


@pytest.mark.timeout(400)
def test_an_api_server_that_is_away_for_a_while_is_not_needed_to_keep_what_there_is(world: World):
    backend = world.add_pod("pod-a", "127.0.0.2")
    operator = world.start_operator(**FAST)
    world.apply("chat", model="org/chat")
    world.apply("gone", model="org/gone")
    world.reaches("chat", "Loaded")
    world.reaches("gone", "Loaded")

    world.plane.stop_api_server()
    try:
        # Nobody is told of this deletion: no watch sees it.
        world.plane.forget(f"flexserv.io/flexservmodels/{world.namespace}/gone")
        backend.evict("org/chat", "manual")
        world.soon(lambda: backend.resident_ids() == ["org/chat", "org/gone"])
        backend.restart()
        world.soon(lambda: backend.resident_ids() == ["org/chat", "org/gone"] and backend.is_synced)
        assert operator.process.poll() is None
        assert operator.get(operator.health_port, "/healthz").status_code == 200
    finally:
        world.plane.start_api_server()

    world.apply("new", model="org/new")
    world.reaches("new", "Loaded", timeout=90)
    world.delete("chat")
    world.soon(lambda: backend.resident_ids() == ["org/new"], timeout=90)
    assert operator.process.poll() is None
