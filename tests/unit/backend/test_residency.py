"""Residency: who is in memory, who waits, who leaves, in every order of events that matters."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hf_transformers_backend.admission import Room
from hf_transformers_backend.errors import BadRequest, FlexServError, NotFound
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.request_id import request_id_of
from hf_transformers_backend.residency import DeclaredModel, Lease, Residency
from hf_transformers_backend.residency.load_job import renamed
from hf_transformers_backend.settings import load_settings

from tests.support.eventually import eventually
from tests.support.fake_loader import FakeLoader, HandClock

A, B, C = (ModelIdentity(name) for name in ("org/a", "org/b", "org/c"))


@dataclass
class House:
    """A residency with its fakes; `room` is what the next load finds."""

    loader: FakeLoader = field(default_factory=FakeLoader)
    clock: HandClock = field(default_factory=HandClock)
    room: Room | None = None
    opened: list[Residency] = field(default_factory=list)

    def open(self, **settings: Any) -> Residency:
        residency = Residency(
            load_settings(**settings),
            self.loader,
            clock=self.clock,
            rooms=lambda _: () if self.room is None else (self.room,),
        )
        residency.start()
        self.opened.append(residency)
        return residency


@pytest.fixture
def house() -> Iterator[House]:
    house = House()
    yield house
    for gate in [*house.loader.gates.values(), *house.loader.fetch_gates.values()]:
        gate.open()
    for residency in house.opened:
        assert residency.close(timeout=10)


def resident(residency: Residency) -> list[str]:
    return [str(model.identity) for model in residency.snapshot().models]


def load(residency: Residency, identity: ModelIdentity, **changes: Any) -> None:
    """Load by order and wait for it."""
    ticket = residency.load(identity, changes)
    if ticket.job is not None:
        error = ticket.job.outcome.result(timeout=20)
        if error is not None:
            raise error


async def code_of(awaitable: Any) -> str | None:
    with pytest.raises(FlexServError) as caught:
        await awaitable
    return caught.value.code


async def waiting(residency: Residency, name: str) -> "asyncio.Task[Lease]":
    """A request that waits for its model."""
    task = asyncio.create_task(residency.acquire(name))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_a_request_loads_its_model_and_the_next_one_finds_it(house: House) -> None:
    residency = house.open()
    with await residency.acquire("org/a") as first:
        assert (first.cold, first.identity, first.requested, first.label) == (True, A, "org/a", "org/a")
    with await residency.acquire("org/a") as second:
        assert second.cold is False
        assert second.model is house.loader.last()
    assert house.loader.order() == ["org/a"]


async def test_many_requests_join_one_load(house: House) -> None:
    residency = house.open()
    gate = house.loader.hold("org/a")
    requests = [await waiting(residency, "org/a") for _ in range(8)]
    gate.open()
    leases = await asyncio.gather(*requests)
    assert house.loader.order() == ["org/a"]
    assert residency.snapshot().models[0].active_requests == 8
    for lease in leases:
        lease.release()
        lease.release()
    assert residency.snapshot().models[0].active_requests == 0


@pytest.mark.parametrize("deaf", [False, True], ids=["aborted from its progress", "discarded on return"])
async def test_an_unload_during_a_load_wins(house: House, deaf: bool) -> None:
    residency = house.open()
    gate = house.loader.hold("org/a", deaf=deaf)
    request = await waiting(residency, "org/a")
    gate.wait_until_reached()
    (unloaded,) = residency.unload("org/a")
    assert (unloaded.was_loaded, unloaded.was_loading, unloaded.had_active_requests) == (False, True, False)
    assert await code_of(request) == "model_unloaded"
    gate.open()
    eventually(lambda: residency.snapshot().loads.get("aborted") == 1, 20)
    assert resident(residency) == []
    assert residency.snapshot().loading == ()


def test_an_unload_of_the_default_revision_leaves_the_others(house: House) -> None:
    residency = house.open()
    pinned = ModelIdentity("org/a", revision="v2")
    for identity in (A, pinned):
        load(residency, identity)
    residency.unload("org/a", revisions={None})
    assert resident(residency) == ["org/a@v2"]


def test_a_bare_id_unloads_all_revisions(house: House) -> None:
    residency = house.open()
    for identity in (A, ModelIdentity("org/a", revision="v2")):
        load(residency, identity)
    residency.unload("org/a")
    assert resident(residency) == []


def test_a_load_starts_when_its_work_does_and_not_when_it_queues(house: House) -> None:
    residency = house.open()
    gate = house.loader.hold("org/a")
    first = residency.load(A)
    gate.wait_until_reached()
    second = residency.load(B)
    views = {str(job.identity): job for job in residency.snapshot().loading}
    assert views["org/a"].started_at == house.clock.now()
    assert (views["org/b"].stage, views["org/b"].started_at) == ("queued", None)
    gate.open()
    for ticket in (first, second):
        assert ticket.job is not None and ticket.job.outcome.result(timeout=20) is None


def test_the_default_encoder_waits_for_its_first_request_and_the_default_model_does_not(house: House) -> None:
    residency = house.open(default_model="org/a", default_embedding_model="org/enc")
    eventually(lambda: resident(residency), 20)
    assert (resident(residency), residency.snapshot().loading) == (["org/a"], ())
    assert residency.resolve(None, "embedding") == ModelIdentity("org/enc", "embedding")
    load(residency, ModelIdentity("org/enc", "embedding"))
    assert all(model.default for model in residency.snapshot().models)


async def test_a_request_after_the_unload_loads_afresh(house: House) -> None:
    residency = house.open()
    gate = house.loader.hold("org/a")
    request = await waiting(residency, "org/a")
    residency.unload("org/a")
    assert await code_of(request) == "model_unloaded"
    gate.open()
    with await residency.acquire("org/a") as lease:
        assert lease.cold


async def test_unloading_all_also_ends_the_queue_and_the_downloads(house: House) -> None:
    residency = house.open()
    house.loader.hold("org/a").reached.clear()
    house.loader.hold_download("org/c")
    tickets = [residency.load(identity) for identity in (A, B, C)]
    eventually(lambda: house.loader.gates["org/a"].reached.is_set(), 20)
    house.loader.fetch_gates["org/c"].wait_until_reached()
    assert {str(one.identity) for one in residency.unload(None)} == {"org/a", "org/b", "org/c"}
    for ticket in tickets:
        assert ticket.job is not None
        error = ticket.job.outcome.result(timeout=20)
        assert error is not None and error.code == "model_unloaded"
    eventually(lambda: residency.snapshot().loads.get("aborted") == 3, 20)
    assert house.loader.order() == []


async def test_an_unload_leaves_a_model_in_use_to_its_requests(house: House) -> None:
    residency = house.open()
    lease = await residency.acquire("org/a")
    weights = weakref.ref(house.loader.last().weights)
    (unloaded,) = residency.unload("org/a")
    assert (unloaded.was_loaded, unloaded.had_active_requests) == (True, True)
    assert resident(residency) == []
    assert [str(model.identity) for model in residency.snapshot().unloading] == ["org/a"]
    gc.collect()
    assert weights() is not None
    assert lease.model.identity == A
    lease.release()
    eventually(lambda: weights() is None and not residency.snapshot().unloading, 20)
    with pytest.raises(RuntimeError, match="released"):
        _ = lease.model


async def test_unloading_frees_the_weights_before_it_returns(house: House) -> None:
    residency = house.open()
    (await residency.acquire("org/a")).release()
    model = house.loader.last()
    closed: list[str] = []
    model.resources.callback(closed.append, "manager")
    weights, executor = weakref.ref(model.weights), model.executor
    del model
    residency.unload("org/a")
    assert weights() is None
    assert closed == ["manager"]
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(print)


@pytest.mark.parametrize("way", ["idleness", "an unload of all"])
def test_a_model_that_cannot_be_freed_keeps_none_of_the_others(
    house: House, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    residency = house.open(model_timeout=10)
    load(residency, A)
    house.loader.last().executor.shutdown()  # waiting for its work raises
    load(residency, B)
    weights = weakref.ref(house.loader.last().weights)
    if way == "idleness":
        house.clock.advance(11)
        residency.tidy()
    else:
        residency.unload(None)
    eventually(lambda: not residency.snapshot().unloading, 20)
    assert weights() is None
    assert "freeing the memory of org/a failed" in caplog.text


def test_tidying_up_looks_after_the_heap_too(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[str] = []
    sweeper = SimpleNamespace(sweep=lambda: swept.append("heap"))
    monkeypatch.setattr("hf_transformers_backend.residency.housekeeper.Sweeper", lambda: sweeper)
    house.open().tidy()
    assert swept


async def test_a_dropped_lease_is_given_back_by_the_collector(house: House) -> None:
    residency = house.open()
    lease = await residency.acquire("org/a")
    del lease
    gc.collect()
    residency.tidy()
    eventually(lambda: residency.snapshot().models[0].active_requests == 0, 20)


async def test_the_idle_clock_starts_when_the_last_request_ends(house: House) -> None:
    residency = house.open(model_timeout=100)
    lease = await residency.acquire("org/a")
    house.clock.advance(1000)
    residency.tidy()
    assert resident(residency) == ["org/a"]
    assert residency.snapshot().models[0].expires_at is None
    lease.release()
    house.clock.advance(99)
    residency.tidy()
    assert resident(residency) == ["org/a"]
    house.clock.advance(1)
    residency.tidy()
    assert resident(residency) == []
    assert residency.snapshot().evictions == {"idle": 1}


@pytest.mark.parametrize(
    ("server_timeout", "changes", "stays"),
    [
        (100, {}, False),
        (0, {}, True),
        (100, {"pin": True}, True),
        (100, {"idle_timeout_seconds": 0}, True),
        (100, {"idle_timeout_seconds": 5000}, True),
        (0, {"idle_timeout_seconds": 50}, False),
    ],
)
def test_who_stays_when_idle(
    house: House, server_timeout: float, changes: dict[str, Any], stays: bool
) -> None:
    residency = house.open(model_timeout=server_timeout)
    load(residency, A, **changes)
    house.clock.advance(1000)
    residency.tidy()
    assert (resident(residency) == ["org/a"]) is stays


def test_live_settings_apply_at_once_and_absent_ones_stay(house: House) -> None:
    residency = house.open()
    load(residency, A, owner="ns/a#1", pin=True, served_name="chat")
    assert residency.load(A, {"priority": 7}).job is None
    (model,) = residency.snapshot().models
    assert (model.owner, model.pinned, model.priority, model.label) == ("ns/a#1", True, 7, "chat")
    residency.load(A, {"owner": None, "pin": False})
    (model,) = residency.snapshot().models
    assert (model.owner, model.pinned, model.served_name) == (None, False, "chat")
    assert house.loader.order() == ["org/a"]


async def test_other_load_time_settings_replace_the_model(house: House) -> None:
    residency = house.open()
    load(residency, A, owner="ns/a#1")
    with await residency.acquire("org/a") as old:
        gate = house.loader.hold("org/a")
        ticket = residency.load(A, {"dtype": "bfloat16"})
        gate.wait_until_reached()
        with await residency.acquire("org/a") as meanwhile:
            assert meanwhile.model is old.model
        gate.open()
        assert ticket.job is not None and ticket.job.outcome.result(timeout=20) is None
        (model,) = residency.snapshot().models
        assert (model.settings.dtype, model.owner) == ("bfloat16", "ns/a#1")
        assert len(residency.snapshot().unloading) == 1
    eventually(lambda: not residency.snapshot().unloading, 20)
    assert residency.snapshot().evictions == {"replaced": 1}


async def test_other_load_time_settings_restart_a_load_and_its_waiters_stay(house: House) -> None:
    residency = house.open()
    gate = house.loader.hold("org/a")
    request = await waiting(residency, "org/a")
    gate.wait_until_reached()
    ticket = residency.load(A, {"dtype": "float16"})
    gate.open()
    lease = await request
    assert lease.model.settings.dtype == "float16"
    assert ticket.job is not None and ticket.job.outcome.result(timeout=20) is None
    lease.release()


async def test_a_request_waits_no_longer_than_load_wait(house: House) -> None:
    residency = house.open(load_wait=0.05)
    gate = house.loader.hold("org/a")
    with pytest.raises(FlexServError) as caught:
        await residency.acquire("org/a")
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (503, "model_loading", 5.0)
    gate.open()
    eventually(lambda: resident(residency) == ["org/a"], 20)
    assert residency.snapshot().models[0].active_requests == 0


async def test_a_request_that_gives_up_leaves_no_lease_behind(house: House) -> None:
    residency = house.open()
    gate = house.loader.hold("org/a")
    request = await waiting(residency, "org/a")
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    gate.open()
    eventually(lambda: resident(residency) == ["org/a"], 20)
    assert residency.snapshot().models[0].active_requests == 0


async def test_a_failed_load_tells_everybody_under_the_name_that_they_used(house: House) -> None:
    residency = house.open()
    residency.declare([DeclaredModel(ModelIdentity("/models/a"), {"served_name": "chat"})], "h1")
    house.loader.fail("/models/a", NotFound("there is no model folder /models/a"))
    with pytest.raises(NotFound) as caught:
        await residency.acquire("chat")
    assert caught.value.message == "there is no model folder chat"
    (failure,) = residency.snapshot().failed
    assert (failure.code, failure.message) == ("model_not_found", "there is no model folder /models/a")
    del house.loader.errors["/models/a"]
    (await residency.acquire("chat")).release()
    assert residency.snapshot().failed == ()
    assert residency.snapshot().loads == {"failed": 1, "loaded": 1}


async def test_a_fault_of_ours_becomes_load_failed_without_its_text(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    residency = house.open()
    house.loader.fail("org/a", RuntimeError("secret path /root/x"))
    with pytest.raises(FlexServError) as caught:
        await residency.acquire("org/a")
    assert (caught.value.status, caught.value.code) == (500, "load_failed")
    assert "secret" not in caught.value.message
    assert "secret path" in caplog.text


async def test_an_eviction_never_touches_a_model_in_use(house: House) -> None:
    residency = house.open()
    lease = await residency.acquire("org/a")
    result = residency.evict(A, "memory", oom_triggered=True)
    assert (result.freed, result.had_active_requests) == (False, True)
    assert resident(residency) == ["org/a"]
    lease.release()
    del lease
    result = residency.evict(A, "idle", oom_triggered=True)
    assert (result.freed, result.had_active_requests) == (True, False)
    (eviction,) = residency.snapshot().last_evictions
    assert (eviction.identity, eviction.reason, eviction.count) == (A, "memory", 1)
    assert residency.evict(A, "memory").freed is False


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotFound("there is no such folder"), "model_not_found"),
        (BadRequest("this device does not exist"), "load_failed"),
        (RuntimeError("a fault of ours"), "load_failed"),
    ],
)
async def test_the_log_line_of_every_failed_load_names_its_reason(
    house: House, caplog: pytest.LogCaptureFixture, error: Exception, reason: str
) -> None:
    caplog.set_level("INFO")
    residency = house.open()
    house.loader.fail("org/a", error)
    with pytest.raises(FlexServError):
        await residency.acquire("org/a")
    (failure,) = residency.snapshot().failed
    assert failure.code == reason

    def reasons() -> list[str]:  # the waiters are told before the line is written
        return [vars(line)["reason"] for line in caplog.records if line.msg.startswith("cannot load")]

    assert eventually(reasons, 20) == [reason]


@pytest.mark.parametrize(
    ("error", "asked_by", "level"),
    [
        (NotFound("there is no such folder"), "a-client", "INFO"),
        (BadRequest("this is no name"), "a-client", "INFO"),
        (NotFound("there is no such folder"), None, "WARNING"),
        (RuntimeError("a fault of ours"), "a-client", "WARNING"),
    ],
)
async def test_a_wrong_name_in_a_request_is_no_warning(
    house: House, caplog: pytest.LogCaptureFixture, error: Exception, asked_by: str | None, level: str
) -> None:
    caplog.set_level("INFO")
    residency = house.open()
    house.loader.fail("org/a", error)
    with request_id_of(asked_by), pytest.raises(FlexServError):
        await residency.acquire("org/a")

    def levels() -> list[str]:  # the waiters are told before the line is written
        return [line.levelname for line in caplog.records if line.msg.startswith("cannot load")]

    assert eventually(levels, 20) == [level]


def test_evictions_are_counted_and_numbered(house: House) -> None:
    residency = house.open()
    for identity in (A, B, A):
        load(residency, identity)
        residency.evict(identity, "memory")
    evictions = {str(one.identity): (one.seq, one.count) for one in residency.snapshot().last_evictions}
    assert evictions == {"org/b": (2, 1), "org/a": (3, 2)}


def test_waiting_loads_go_by_priority(house: House) -> None:
    residency = house.open()
    gate = house.loader.hold("org/first")
    residency.load(ModelIdentity("org/first"))
    gate.wait_until_reached()
    tickets = [residency.load(A, {"priority": 1}), residency.load(B, {"priority": 5}), residency.load(C)]
    eventually(lambda: all(t.job is not None and t.job.source is not None for t in tickets), 20)
    gate.open()
    for ticket in tickets:
        assert ticket.job is not None
        ticket.job.outcome.result(timeout=20)
    assert house.loader.order() == ["org/first", "org/b", "org/a", "org/c"]


def test_a_load_that_cannot_fit_is_refused_with_the_numbers(house: House) -> None:
    residency = house.open()
    load(residency, A, pin=True)
    house.loader.sizes["org/b"] = 1000
    house.room = Room("cpu", free_bytes=400, used_bytes=600, total_bytes=1000)
    with pytest.raises(FlexServError) as caught:
        load(residency, B)
    assert (caught.value.status, caught.value.code) == (507, "insufficient_memory")
    assert caught.value.details == {"needed_bytes": 1050, "available_bytes": 400}
    (failure,) = residency.snapshot().failed
    assert (failure.needed_bytes, failure.available_bytes) == (1050, 400)
    assert resident(residency) == ["org/a"]


async def test_idle_models_make_room_least_recently_used_first(house: House) -> None:
    residency = house.open()
    house.loader.sizes |= {"org/a": 300, "org/b": 300, "org/c": 300, "org/d": 500}
    load(residency, ModelIdentity("org/pinned"), pin=True)
    for name in ("org/a", "org/b", "org/c"):
        house.clock.advance(1)
        (await residency.acquire(name)).release()
    with await residency.acquire("org/a"):
        house.room = Room("cpu", free_bytes=0, used_bytes=1000, total_bytes=1000)
        load(residency, ModelIdentity("org/d"))
        assert resident(residency) == ["org/pinned", "org/a", "org/d"]
    assert residency.snapshot().evictions == {"room": 2}


def test_a_replacement_that_does_not_fit_beside_comes_after(house: House) -> None:
    residency = house.open()
    house.loader.sizes["org/a"] = 800
    house.room = Room("cpu", free_bytes=1000, used_bytes=0, total_bytes=1000)
    load(residency, A, pin=True)
    house.room = Room("cpu", free_bytes=200, used_bytes=800, total_bytes=1000)
    load(residency, A, dtype="bfloat16")
    assert [model.settings.dtype for model in residency.snapshot().models] == ["bfloat16"]
    assert residency.snapshot().evictions == {"replaced": 1}


async def test_a_draining_server_takes_no_new_work(house: House) -> None:
    residency = house.open()
    lease = await residency.acquire("org/a")
    residency.drain()
    assert await code_of(residency.acquire("org/a")) == "draining"
    with pytest.raises(FlexServError, match="shutting down"):
        residency.load(B)
    assert lease.model is house.loader.last()
    lease.release()


@pytest.mark.parametrize(("refuses_work", "code"), [(True, "memory_pressure"), (False, None)])
async def test_only_pressure_that_says_so_refuses_work(
    house: House, refuses_work: bool, code: str | None
) -> None:
    residency = house.open()
    load(residency, A)
    residency.set_pressure(Pressure("ram", "cpu", "container", "own", 0.97, 0.9, refuses_work))
    if code is None:
        (await residency.acquire("org/a")).release()
    else:
        assert await code_of(residency.acquire("org/a")) == code
    residency.set_pressure(None)
    (await residency.acquire("org/a")).release()


def test_the_declared_list_applies_to_residents_at_once(house: House) -> None:
    residency = house.open()
    load(residency, A)
    residency.declare([DeclaredModel(A, {"owner": "ns/a#1", "pin": True, "served_name": "chat"})], "h1")
    snapshot = residency.snapshot()
    assert (snapshot.models[0].owner, snapshot.models[0].pinned) == ("ns/a#1", True)
    assert (snapshot.declared_hash, snapshot.declared_labels) == ("h1", {"chat"})


async def test_a_declared_model_is_loaded_on_demand_with_its_own_settings(house: House) -> None:
    residency = house.open(on_demand="declared")
    assert await code_of(residency.acquire("chat")) == "not_synced"
    residency.declare([DeclaredModel(A, {"served_name": "chat", "dtype": "float16", "priority": 3})], "h1")
    with await residency.acquire("chat") as lease:
        assert (lease.identity, lease.requested, lease.label) == (A, "chat", "chat")
        assert lease.model.settings.dtype == "float16"
    assert residency.snapshot().models[0].priority == 3
    assert await code_of(residency.acquire("org/b")) == "not_declared"


def test_a_model_whose_load_ended_the_process_waits_for_an_order(house: House, tmp_path: Any) -> None:
    gate = house.loader.hold("org/a", deaf=True)
    house.open(state_dir=tmp_path).load(A)
    gate.wait_until_reached()
    # What a crash leaves: the marker, and nobody to remove it. The next process finds it.
    second = house.open(state_dir=tmp_path, default_model="org/a")
    assert second.crashed_loading == (A,)
    assert second.snapshot().loading == ()
    with pytest.raises(FlexServError) as caught:
        asyncio.run(second.acquire("org/a"))
    assert caught.value.code == "model_quarantined"
    gate.open()
    load(second, A)
    assert second.crashed_loading == ()
    eventually(lambda: not list(tmp_path.glob("*.json")), 20)


@pytest.mark.parametrize("error", [None, NotFound("gone")], ids=["well", "badly"])
def test_whoever_is_told_how_a_load_ended_may_kill_the_process_without_blame_for_the_model(
    house: House, tmp_path: Any, error: FlexServError | None
) -> None:
    gate, residency = house.loader.hold("org/a"), house.open(state_dir=tmp_path)
    if error is not None:
        house.loader.fail("org/a", error)
    job, markers = residency.load(A, {}).job, list[list[Any]]()
    assert job is not None
    gate.wait_until_reached()
    assert list(tmp_path.glob("*.json"))
    job.outcome.add_done_callback(lambda _: markers.append(list(tmp_path.glob("*.json"))))
    gate.open()
    assert job.outcome.result(timeout=20) is error
    eventually(lambda: markers == [[]], 20)


def test_a_change_of_mind_about_load_time_settings_keeps_the_model_that_is_there(house: House) -> None:
    residency = house.open()
    load(residency, A)
    gate = house.loader.hold("org/a")
    ticket = residency.load(A, {"dtype": "float16"})
    gate.wait_until_reached()
    assert residency.load(A, {"dtype": "auto"}).job is None
    assert ticket.job is not None and ticket.job.outcome.result(timeout=20) is None
    eventually(lambda: residency.snapshot().loads.get("aborted") == 1, 20)
    assert [model.settings.dtype for model in residency.snapshot().models] == ["auto"]
    assert house.loader.order() == ["org/a"]


@pytest.mark.parametrize(
    ("identity", "requested", "message", "told"),
    [
        (
            ModelIdentity("org/m", revision="abc"),
            "bot",
            "there is no model org/m@abc; org/m@abc is not on the hub.",
            "there is no model bot; bot is not on the hub.",
        ),
        (ModelIdentity("e", revision="zz"), "e@zz", "there is no e@zz here", "there is no e@zz here"),
        (
            ModelIdentity("org/m"),
            "bot",
            "'org/m': see org/m-1, org/m.v2 and /org/m",
            "'bot': see org/m-1, org/m.v2 and /org/m",
        ),
        (ModelIdentity("e"), "bot", "the encoder e.", "the encoder bot."),
    ],
)
def test_an_error_names_the_model_as_it_was_asked_for_and_changes_no_other_word(
    identity: ModelIdentity, requested: str, message: str, told: str
) -> None:
    assert renamed(NotFound(message), identity, requested).message == told
