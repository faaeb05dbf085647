"""Residency as a state machine: whatever comes in whatever order, what must hold does (see World.check)."""

import gc
from collections.abc import Iterator

import pytest
from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.identity import ModelIdentity
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.fake_loader import Gate
from tests.support.residency_machine import World

SIZES: dict[str, int | None] = {
    "org/a": 600,
    "org/b": 300,
    "org/c": 300,
    "org/huge": 5000,
    "org/unknown": None,
}
PRESSURE = Pressure("ram", "cpu", "container", "own", 0.97, 0.9, refuses_work=True)

names = st.sampled_from([*["org/a", "org/b"] * 3, "org/c", "org/unknown", "org/huge"])
numbers = st.integers(0, 7)


class ResidencyMachine(RuleBasedStateMachine):
    """Each rule is something that a client, the operator, the clock, the monitor or a device does."""

    @initialize(max_models=st.sampled_from([0, 0, 2]))
    def begin(self, max_models: int) -> None:
        self.world = World(SIZES, max_models=max_models)

    @rule(name=names, count=st.integers(1, 3))
    def requests_come(self, name: str, count: int) -> None:
        for _ in range(count):
            self.world.request(name)

    @rule()
    def answers_are_read(self) -> None:
        self.world.collect()

    @rule(number=numbers)
    def a_request_ends(self, number: int) -> None:
        self.world.collect()
        if self.world.leases:
            self.world.leases.pop(number % len(self.world.leases)).release()

    @rule(number=numbers)
    def a_lease_is_dropped(self, number: int) -> None:
        self.world.collect()
        if self.world.leases:
            del self.world.leases[number % len(self.world.leases)]

    @rule(number=numbers)
    def a_client_goes(self, number: int) -> None:
        if self.world.pending:
            self.world.pending[number % len(self.world.pending)].cancel()

    @rule(
        name=names,
        changes=st.fixed_dictionaries(
            {},
            optional={
                "dtype": st.sampled_from(["float32", "float16"]),
                "pin": st.booleans(),
                "priority": st.integers(0, 2),
            },
        ),
    )
    def the_operator_loads(self, name: str, changes: dict[str, object]) -> None:
        identity = ModelIdentity(name)
        if changes.get("pin") is False:
            self.world.unpin(identity)
        try:
            self.world.residency.load(identity, changes)
        except FlexServError as error:
            assert error.code == "memory_pressure"

    @rule(name=st.one_of(st.none(), names))
    def it_is_unloaded(self, name: str | None) -> None:
        self.world.unpin(None if name is None else ModelIdentity(name))
        self.world.residency.unload(name)

    @rule(name=names, even_in_use=st.booleans())
    def the_monitor_evicts(self, name: str, even_in_use: bool) -> None:
        identity = ModelIdentity(name)
        self.world.unpin(identity)
        self.world.residency.evict(identity, "memory", oom_triggered=True, even_in_use=even_in_use)

    @rule(refuses=st.sampled_from([False, False, True]))
    def memory_is_short(self, refuses: bool) -> None:
        self.world.residency.set_pressure(PRESSURE if refuses else None)

    @rule(seconds=st.sampled_from([1.0, 60.0, 5000.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.world.residency.tidy()

    @rule(name=names, deaf=st.booleans())
    def loads_take_long(self, name: str, deaf: bool) -> None:
        gate = self.world.loader.gates.get(name)
        if gate is None or gate.opened.is_set():
            self.world.loader.gates[name] = Gate(deaf=deaf)

    @rule()
    def it_is_quiet_for_a_while(self) -> None:
        self.loads_go_on()
        self.world.loader.errors.clear()
        self.world.loader.runs_out.clear()
        self.world.residency.set_pressure(None)
        self.world.pause()

    @rule(name=names, pin=st.booleans())
    def the_operator_loads_and_waits(self, name: str, pin: bool) -> None:
        self.it_is_quiet_for_a_while()
        self.the_operator_loads(name, {"pin": pin})
        self.world.pause()

    @rule(name=names)
    def a_request_gets_its_model(self, name: str) -> None:
        self.it_is_quiet_for_a_while()
        self.world.request(name)
        self.world.pause()
        self.world.collect()

    @rule(name=names, dtype=st.sampled_from(["float32", "float16"]))
    def a_model_in_use_is_replaced(self, name: str, dtype: str) -> None:
        self.a_request_gets_its_model(name)
        self.the_operator_loads(name, {"dtype": dtype})
        self.world.pause()

    @rule(name=names)
    def a_pinned_model_is_idle_for_long(self, name: str) -> None:
        self.the_operator_loads_and_waits(name, True)
        self.world.check()
        self.time_passes(5000.0)

    @rule()
    def loads_go_on(self) -> None:
        for gate in list(self.world.loader.gates.values()):
            gate.open()

    @rule(name=names, works=st.booleans())
    def files_break(self, name: str, works: bool) -> None:
        if works:
            self.world.loader.errors.pop(name, None)
        else:
            self.world.loader.errors[name] = FlexServError("broken on purpose", code="broken")

    @rule(name=names, times=st.integers(1, 2))
    def the_device_runs_out_of_memory(self, name: str, times: int) -> None:
        self.world.loader.runs_out[name] = times

    @invariant()
    def what_must_hold_does(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.end()


@pytest.fixture
def short_collections() -> Iterator[None]:
    """As the server does: what is there already need not be looked at again with every unload."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("short_collections")
def test_whatever_comes_in_whatever_order() -> None:
    run_state_machine_as_test(
        ResidencyMachine,
        settings=settings(
            max_examples=30,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
