"""Residency when memory is short: who makes room, who is waited for, and what is refused."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hf_transformers_backend.admission import Room
from hf_transformers_backend.device_fault import DeviceHealth
from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.identity import Kind, ModelIdentity
from hf_transformers_backend.residency import LoadTicket, Residency
from hf_transformers_backend.settings import load_settings

from tests.support.eventually import eventually
from tests.support.fake_loader import FakeLoader, HandClock

A, B, C, D = (ModelIdentity(name) for name in ("org/a", "org/b", "org/c", "org/d"))
TOTAL = 1000


@dataclass
class House:
    """A residency in memories of TOTAL bytes, one for each of `memories`, where models really take place."""

    loader: FakeLoader = field(default_factory=FakeLoader)
    clock: HandClock = field(default_factory=HandClock)
    memories: tuple[str, ...] = ("cpu",)
    while_measuring: list[Callable[[], object]] = field(default_factory=list)
    others: int = 0
    threshold: float = 1.0
    health: DeviceHealth = field(default_factory=DeviceHealth)
    opened: list[Residency] = field(default_factory=list)

    def open(self, **settings: Any) -> Residency:
        residency = Residency(
            load_settings(**settings),
            self.loader,
            clock=self.clock,
            rooms=lambda kind: [self.room(residency, device) for device in self.memories],
            health=self.health,
        )
        residency.start()
        self.opened.append(residency)
        return residency

    def room(self, residency: Residency, device: str) -> Room:
        now = residency.snapshot()
        used = self.others + sum(one.devices.get(device, 0) for one in (*now.models, *now.unloading))
        while self.while_measuring:
            self.while_measuring.pop()()
        return Room(device, TOTAL - used, used, TOTAL, self.threshold)


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    house.loader.sizes = {"org/a": 600, "org/b": 300, "org/c": 500, "org/d": 2000}
    yield house
    for gate in (*house.loader.gates.values(), *house.loader.fetch_gates.values()):
        gate.open()
    for residency in house.opened:
        assert residency.close(timeout=20)


def resident(residency: Residency) -> list[str]:
    return [str(model.identity) for model in residency.snapshot().models]


def outcome(ticket: LoadTicket) -> FlexServError | None:
    return None if ticket.job is None else ticket.job.outcome.result(timeout=20)


def load(residency: Residency, identity: ModelIdentity, **changes: Any) -> None:
    error = outcome(residency.load(identity, changes))
    if error is not None:
        raise error


def refusal(residency: Residency, identity: ModelIdentity, **changes: Any) -> FlexServError:
    with pytest.raises(FlexServError) as caught:
        load(residency, identity, **changes)
    return caught.value


def test_idle_models_go_for_a_load_until_it_fits_under_the_threshold(house: House) -> None:
    house.threshold = 0.95
    house.loader.sizes["org/c"] = 800
    residency = house.open()
    load(residency, B)
    house.clock.advance(1)
    load(residency, A)
    load(residency, C)
    assert resident(residency) == ["org/c"]
    assert residency.snapshot().evictions == {"room": 2}


def test_nobody_goes_in_vain_for_a_load_because_it_was_used_longer_ago(house: House) -> None:
    house.threshold = 0.95
    residency = house.open()
    load(residency, B)
    house.clock.advance(1)
    load(residency, A)
    load(residency, C)
    assert resident(residency) == ["org/b", "org/c"], "525 beside 300 fit into 950"
    assert residency.snapshot().evictions == {"room": 1}


def test_what_can_never_fit_is_refused_at_once_and_nobody_goes(house: House) -> None:
    residency = house.open()
    load(residency, A)
    error = refusal(residency, D)
    assert (error.status, error.code) == (507, "insufficient_memory")
    assert error.details == {"needed_bytes": 2100, "available_bytes": 1000}
    assert resident(residency) == ["org/a"]


def test_what_can_never_fit_is_not_downloaded(house: House) -> None:
    house.loader.expected["org/d"] = 2000
    download = house.loader.hold_download("org/d")
    residency = house.open()
    load(residency, A, pin=True)
    error = refusal(residency, D)
    assert (error.code, error.details) == (
        "insufficient_memory",
        {"needed_bytes": 2100, "available_bytes": 1000},
    )
    assert not download.reached.is_set()


def test_what_could_fit_if_others_went_is_downloaded_first_and_they_serve_meanwhile(house: House) -> None:
    house.loader.expected["org/c"] = 500
    download = house.loader.hold_download("org/c")
    residency = house.open()
    load(residency, A, pin=True)
    ticket = residency.load(C)
    download.wait_until_reached()
    assert resident(residency) == ["org/a"]
    download.open()
    error = outcome(ticket)
    assert error is not None and error.details == {"needed_bytes": 525, "available_bytes": 400}


@pytest.mark.parametrize("kind", ["serve", "embedding"])
def test_encoders_are_let_in_by_the_same_rules(house: House, kind: Kind) -> None:
    residency = house.open()
    error = refusal(residency, ModelIdentity("org/d", kind))
    assert error.code == "insufficient_memory"


def test_on_several_gpus_only_those_on_the_devices_in_question_go(house: House) -> None:
    house.memories = ("cuda:1",)
    house.loader.devices = {"org/a": "cuda:0", "org/b": "cuda:1", "org/c": "cuda:1"}
    residency = house.open()
    for identity in (A, B):
        load(residency, identity)
        house.clock.advance(1)
    house.others = 300
    load(residency, C)
    assert resident(residency) == ["org/a", "org/c"]


def test_a_replacement_stands_beside_the_old_one_if_both_fit(house: House) -> None:
    residency = house.open()
    load(residency, B)
    gate = house.loader.hold("org/b")
    ticket = residency.load(B, {"dtype": "float16"})
    gate.wait_until_reached()
    assert resident(residency) == ["org/b"], "the old one serves until the new one is in"
    gate.open()
    assert outcome(ticket) is None
    assert residency.snapshot().models[0].settings.dtype == "float16"


async def test_a_replacement_that_does_not_fit_comes_after_the_old_ones_last_request(house: House) -> None:
    residency = house.open()
    old = await residency.acquire("org/a")
    ticket = residency.load(A, {"dtype": "float16"})
    eventually(lambda: [str(one.identity) for one in residency.snapshot().unloading] == ["org/a"], 20)
    newcomer = asyncio.create_task(residency.acquire("org/a"))
    await asyncio.to_thread(load, residency, B)  # others are not held up meanwhile
    assert ticket.job is not None and not ticket.job.outcome.done()
    assert old.model.settings.dtype == "auto"
    old.release()
    del old
    with await newcomer as lease:
        assert lease.model.settings.dtype == "float16"
    assert residency.snapshot().evictions == {"replaced": 1}


async def test_the_wait_for_an_old_one_has_an_end_and_the_refusal_its_numbers(house: House) -> None:
    residency = house.open(load_wait=60)
    old = await residency.acquire("org/a")
    ticket = residency.load(A, {"dtype": "float16"})
    eventually(lambda: residency.snapshot().unloading, 20)
    residency.tidy()
    house.clock.advance(59)
    residency.tidy()
    assert ticket.job is not None and not ticket.job.outcome.done()
    house.clock.advance(1)
    residency.tidy()
    error = await asyncio.to_thread(outcome, ticket)
    assert error is not None
    assert (error.code, error.details) == (
        "insufficient_memory",
        {"needed_bytes": 630, "available_bytes": 400},
    )
    assert "org/a (1)" in error.message and error.retry_after
    old.release()


async def test_the_wait_for_a_place_under_the_cap_has_an_end_and_says_who_holds_on(house: House) -> None:
    house.loader.sizes = dict.fromkeys(("org/a", "org/b", "org/c"), 1)
    residency = house.open(max_loaded_models=2, load_wait=60)
    await asyncio.to_thread(load, residency, A, pin=True)
    lease = await residency.acquire("org/b")
    await asyncio.to_thread(residency.unload, "org/b")
    ticket = residency.load(C)

    def is_over() -> bool:
        house.clock.advance(60)  # again and again: its patience begins where it starts to wait
        residency.tidy()
        return ticket.job is not None and ticket.job.outcome.done()

    eventually(is_over, 20)
    error = outcome(ticket)
    assert error is not None
    assert (error.code, error.details) == ("insufficient_memory", {"max_loaded_models": 2})
    assert "org/b (1)" in error.message and error.retry_after
    lease.release()


async def test_an_unload_ends_a_load_that_waits_for_memory(house: House) -> None:
    residency = house.open()
    old = await residency.acquire("org/a")
    ticket = residency.load(A, {"dtype": "float16"})
    eventually(lambda: residency.snapshot().unloading, 20)
    await asyncio.to_thread(residency.unload, "org/a")
    error = outcome(ticket)
    assert error is not None and error.code == "model_unloaded"
    residency.tidy()
    eventually(lambda: residency.snapshot().loads.get("aborted") == 1, 20)
    old.release()


@pytest.mark.parametrize("end", ["admitted", "refused", "unloaded", "pressed"])
async def test_a_load_that_waited_is_forgotten_however_it_ends(house: House, end: str) -> None:
    residency = house.open(load_wait=60)
    old = await residency.acquire("org/a")
    ticket = residency.load(A, {"dtype": "float16"})
    eventually(lambda: residency.snapshot().unloading, 20)
    residency.tidy()
    if end == "refused":
        house.clock.advance(60)
    elif end == "unloaded":
        await asyncio.to_thread(residency.unload, "org/a")
    elif end == "pressed":
        residency.set_pressure(Pressure("ram", "cpu", "container", "own", 0.97, 0.9, refuses_work=True))
    if end in ("admitted", "pressed"):
        old.release()
    residency.tidy()
    error = await asyncio.to_thread(outcome, ticket)
    codes = {"refused": "insufficient_memory", "unloaded": "model_unloaded", "pressed": "memory_pressure"}
    assert (None if error is None else error.code) == codes.get(end)
    forgotten = weakref.ref(ticket.job)
    old.release()
    del old, ticket, error
    residency.set_pressure(None)
    await asyncio.to_thread(load, residency, A)  # a failure is remembered until the next load

    def is_gone() -> bool:
        gc.collect()
        return forgotten() is None

    eventually(is_gone, 20)


async def test_memory_that_an_unloaded_model_still_holds_is_waited_for(house: House) -> None:
    residency = house.open()
    lease = await residency.acquire("org/a")
    await asyncio.to_thread(residency.unload, "org/a")
    ticket = residency.load(C)
    eventually(lambda: residency.snapshot().loading, 20)
    lease.release()
    del lease
    assert await asyncio.to_thread(outcome, ticket) is None
    assert resident(residency) == ["org/c"]


def test_memory_that_comes_back_between_the_measuring_and_the_decision_is_seen(house: House) -> None:
    residency = house.open()
    load(residency, A, pin=True)
    house.while_measuring = [lambda: residency.unload("org/a")]
    load(residency, C)
    assert resident(residency) == ["org/c"]


def test_a_refusal_counts_what_idle_models_would_leave_as_available(house: House) -> None:
    """Who wants to make more room, by moving pinned models, must know what is missing beyond that."""
    residency = house.open()
    load(residency, A, pin=True)
    load(residency, B)
    error = refusal(residency, C)
    assert error.details == {"needed_bytes": 525, "available_bytes": 400}
    assert resident(residency) == ["org/a", "org/b"]


def test_nobody_goes_for_memory_that_comes_back_between_the_measuring_and_the_decision(house: House) -> None:
    house.loader.sizes["org/c"] = 200
    residency = house.open()
    load(residency, A, pin=True)
    load(residency, B)
    house.while_measuring = [lambda: residency.unload("org/a")]
    assert outcome(residency.load(C)) is None
    assert resident(residency) == ["org/b", "org/c"]


def test_weights_that_somebody_still_holds_are_not_given_away_twice(house: House) -> None:
    """The model has left and its memory is not back: the next one must not be let in on top of it."""
    measured = house.room

    def room(residency: Residency, device: str) -> Room:
        found = measured(residency, device)
        now = residency.snapshot()
        listed = A in {one.identity for one in (*now.models, *now.unloading)}
        held = 0 if listed else 600
        return replace(found, free_bytes=found.free_bytes - held, used_bytes=found.used_bytes + held)

    residency = house.open()
    load(residency, A)
    weights = house.loader.last().weights
    house.room = room  # type: ignore[method-assign]
    assert refusal(residency, C).code == "insufficient_memory"
    assert resident(residency) == [] and weights is not None


def test_a_load_is_not_refused_for_memory_that_another_one_is_just_taking(house: House) -> None:
    residency = house.open()
    landing, download = house.loader.hold("org/a"), house.loader.hold_download("org/c")
    house.loader.expected = {"org/c": 500}
    first = residency.load(A)
    landing.wait_until_reached()
    house.others = 600  # what the landing model has taken so far is in nobody's name
    second = residency.load(C)
    download.wait_until_reached()
    house.others = 0
    landing.open()
    assert outcome(first) is None
    download.open()
    assert outcome(second) is None
    assert resident(residency) == ["org/c"]


@pytest.mark.parametrize("end", ["unloaded", "superseded"])
def test_a_load_is_not_refused_for_memory_that_an_aborted_one_still_holds(house: House, end: str) -> None:
    residency = house.open()
    landing = house.loader.hold("org/a", deaf=True)
    residency.load(A)
    landing.wait_until_reached()
    house.others = 600  # in nobody's name, and it comes back when the load has seen that it is aborted
    house.loader.expected = {"org/a": 600, "org/c": 500}
    if end == "unloaded":
        residency.unload("org/a")
    identity, changes = (C, {}) if end == "unloaded" else (A, {"dtype": "float16"})
    download = house.loader.hold_download(identity.model_id)
    following = residency.load(identity, changes)
    assert following.job is not None
    ended = following.job.outcome.done
    eventually(lambda: ended() or download.reached.is_set(), 20)
    house.others = 0
    for gate in (landing, download):
        gate.open()
    assert outcome(following) is None


def test_at_the_cap_an_idle_model_goes_and_a_pinned_one_does_not(house: House) -> None:
    house.loader.sizes = dict.fromkeys(("org/a", "org/b", "org/c"), 1)
    residency = house.open(max_loaded_models=2)
    load(residency, A, pin=True)
    load(residency, B)
    load(residency, C)
    assert resident(residency) == ["org/a", "org/c"]
    load(residency, C, pin=True)
    error = refusal(residency, B)
    assert (error.status, error.code, error.details) == (507, "insufficient_memory", {"max_loaded_models": 2})
    assert "--max-loaded-models" in error.message
    assert resident(residency) == ["org/a", "org/c"]


def test_a_load_that_runs_out_of_memory_gets_room_and_one_more_try(house: House) -> None:
    house.loader.sizes |= {"org/c": 50}
    residency = house.open()
    load(residency, B)
    load(residency, ModelIdentity("org/pinned"), pin=True)
    house.loader.runs_out["org/c"] = 1
    load(residency, C)
    assert resident(residency) == ["org/pinned", "org/c"]
    assert residency.snapshot().evictions == {"room": 1}
    assert residency.snapshot().loads == {"loaded": 3}


def test_a_load_that_runs_out_twice_is_a_507_with_numbers_and_the_next_one_works(house: House) -> None:
    residency = house.open()
    house.loader.runs_out["org/b"] = 2
    error = refusal(residency, B)
    assert (error.status, error.code) == (507, "insufficient_memory")
    assert error.details == {"needed_bytes": 315, "available_bytes": 1000}
    load(residency, B)
    assert resident(residency) == ["org/b"]


def test_a_load_of_unknown_size_that_runs_out_gets_the_room_of_all_idle_models(house: House) -> None:
    house.loader.sizes |= {"org/c": None}
    residency = house.open()
    load(residency, A)
    load(residency, B)
    house.loader.runs_out["org/c"] = 1
    load(residency, C)
    assert resident(residency) == ["org/c"]


async def test_an_eviction_of_all_takes_a_model_from_under_its_requests_which_complete(house: House) -> None:
    residency = house.open()
    lease = await residency.acquire("org/a")
    result = residency.evict(A, "memory", oom_triggered=True, even_in_use=True)
    assert (result.freed, result.had_active_requests) == (False, True)
    assert resident(residency) == []
    assert lease.model.weights is not None
    lease.release()
    del lease
    eventually(lambda: not residency.snapshot().unloading, 20)


async def test_under_pressure_that_refuses_work_nothing_new_comes_in_until_it_is_over(house: House) -> None:
    residency = house.open()
    load(residency, B)
    gate = house.loader.hold("org/a")
    queued_behind = residency.load(A)
    gate.wait_until_reached()
    queued = residency.load(ModelIdentity("org/small"))
    residency.set_pressure(Pressure("ram", "cpu", "container", "own", 0.97, 0.9, refuses_work=True))
    for refused in (lambda: residency.load(C), lambda: asyncio.run(residency.acquire("org/b"))):
        with pytest.raises(FlexServError) as caught:
            await asyncio.to_thread(refused)
        assert (caught.value.status, caught.value.code) == (503, "memory_pressure")
        assert caught.value.retry_after == 5
    gate.open()
    assert await asyncio.to_thread(outcome, queued_behind) is None, "what had been let in comes in"
    error = await asyncio.to_thread(outcome, queued)
    assert error is not None and error.code == "memory_pressure"
    residency.set_pressure(None)
    (await residency.acquire("org/b")).release()
    await asyncio.to_thread(load, residency, ModelIdentity("org/small"))


def test_once_the_device_has_failed_nothing_new_is_taken(house: House) -> None:
    residency = house.open()
    load(residency, B)
    house.loader.fail("org/a", RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert refusal(residency, A).code == "load_failed"
    assert house.health.fault == "CUDA error: an illegal memory access was encountered"
    assert refusal(residency, C).code == "device_failed"
    with pytest.raises(FlexServError) as caught:
        asyncio.run(residency.acquire("org/b"))
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "device_failed", 30)
