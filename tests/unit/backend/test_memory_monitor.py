"""The monitor against a residency whose memory falls when models go; time passes when a test says so."""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hf_transformers_backend import resource_metrics
from hf_transformers_backend.eviction import Pressure, Reading, Scope
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.memory_monitor import MemoryMonitor
from hf_transformers_backend.memory_readings import read_memory
from hf_transformers_backend.residency.views import EvictionResult, ResidencySnapshot, ResidentView
from hf_transformers_backend.settings import Settings

from tests.support.eventually import eventually
from tests.support.fake_nvml import a100, build_library, run_python, write_machine
from tests.support.residents import resident, snapshot

GIB = 1024**3
SETTINGS = Settings(device="cpu")


class MemoryOfModels:
    """A residency in a memory of 100 GiB: what is resident, plus caches, plus what others use."""

    def __init__(
        self, *models: ResidentView, others: int = 0, caches: int = 0, scope: Scope = "container"
    ) -> None:
        self.models = list(models)
        self.leaving: list[ResidentView] = []
        self.others, self.caches, self.scope = others, caches, scope
        self.calls: list[str] = []
        self.pressure: Pressure | None = None
        self.frees = True
        self.taken_meanwhile: set[str] = set()

    def snapshot(self) -> ResidencySnapshot:
        return snapshot(*self.models, unloading=tuple(self.leaving))

    def release_caches(self) -> None:
        self.calls.append("release")
        self.caches = 0

    def evict(
        self,
        identity: ModelIdentity,
        reason: Literal["memory"],
        *,
        oom_triggered: bool = False,
        even_in_use: bool = False,
    ) -> EvictionResult:
        self.calls.append(f"evict {identity}")
        assert (reason, oom_triggered) == ("memory", True)
        if identity.model_id in self.taken_meanwhile:
            return EvictionResult(freed=False, had_active_requests=True)
        gone = next(model for model in self.models if model.identity == identity)
        assert even_in_use or not gone.active_requests
        self.models.remove(gone)
        if gone.active_requests:
            self.leaving.append(gone)
            return EvictionResult(freed=False, had_active_requests=True)
        if not self.frees:
            self.others += gone.bytes // GIB
        return EvictionResult(freed=self.frees, had_active_requests=False)

    def set_pressure(self, pressure: Pressure | None) -> None:
        self.pressure = pressure

    def readings(self) -> list[Reading]:
        used = (self.others + self.caches) * GIB
        used += sum(model.bytes for model in (*self.models, *self.leaving))
        return [Reading("ram", "cpu", self.scope, used, 100 * GIB, 0.9)]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def monitor_of(memory: MemoryOfModels, **changes: Any) -> MemoryMonitor:
    settings = changes.pop("settings", SETTINGS)
    options = {"probe": memory.readings, "clock": Clock(), "watch_vram": False, **changes}
    return MemoryMonitor(memory, settings, **options)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_below_the_threshold_nothing_is_touched() -> None:
    memory = MemoryOfModels(resident("a", 20 * GIB), others=69)
    assert monitor_of(memory).check().action == "nothing"
    assert memory.calls == []
    assert memory.pressure is None


def test_when_releasing_caches_suffices_no_model_goes() -> None:
    memory = MemoryOfModels(resident("a", 20 * GIB), others=65, caches=10)
    assert monitor_of(memory).check().action == "nothing"
    assert memory.calls == ["release"]


def test_models_go_in_order_until_the_reading_is_below_the_margin() -> None:
    memory = MemoryOfModels(
        resident("pinned", 4 * GIB, pinned=True),
        resident("new", 4 * GIB, last_used_at=9),
        resident("old", 4 * GIB, last_used_at=1),
        others=80,
    )
    assert monitor_of(memory).check().action == "nothing"
    assert memory.calls == ["release", "evict old", "evict new"]
    assert [model.identity.model_id for model in memory.models] == ["pinned"]


def test_a_model_that_frees_more_than_expected_spares_the_next() -> None:
    memory = MemoryOfModels(
        resident("a", 4 * GIB, last_used_at=1), resident("b", 4 * GIB, last_used_at=2), others=83
    )
    evict = memory.evict

    def evict_with_its_cache(identity: ModelIdentity, reason: Literal["memory"], **how: bool) -> Any:
        memory.others -= 10
        return evict(identity, reason, **how)

    memory.evict = evict_with_its_cache  # type: ignore[method-assign]
    monitor_of(memory).check()
    assert memory.calls == ["release", "evict a"]


def test_an_eviction_is_a_warning_that_names_the_reading_and_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = MemoryOfModels(resident("org/model", 20 * GIB), others=75)
    monitor_of(memory).check()
    assert warnings_in(caplog) == [
        "Memory pressure: RAM of the container at 95.0 % (threshold 90.0 %, own)",
        "org/model (serve) was evicted to free memory",
    ]


def test_requests_in_flight_are_named_in_a_warning_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryOfModels(resident("idle", 20 * GIB), resident("used", 5 * GIB, active=3), others=70)
    monitor_of(memory).check()
    assert "3 active request(s) are in flight during this eviction; they will complete" in warnings_in(caplog)
    assert [model.identity.model_id for model in memory.models] == ["used"]


def test_the_count_of_active_requests_is_the_one_of_the_http_layer_when_given(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = MemoryOfModels(resident("idle", 20 * GIB), others=75)
    monitor_of(memory, active_requests=lambda: 7).check()
    assert any(message.startswith("7 active request(s)") for message in warnings_in(caplog))


def test_with_every_model_in_use_work_is_refused_until_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    memory = MemoryOfModels(resident("used", 20 * GIB, active=2), others=75)
    monitor = monitor_of(memory)
    assert monitor.check().action == "exhausted"
    assert memory.calls == ["release"]
    assert memory.pressure is not None
    assert memory.pressure.refuses_work
    assert "2 active request(s) hold their models until they end" in warnings_in(caplog)
    memory.others = 10
    assert monitor.check().action == "nothing"
    assert memory.pressure is None
    assert caplog.records[-1].getMessage() == "Memory pressure is over"


def test_pressure_that_lasts_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryOfModels(resident("small", 1 * GIB), others=98, scope="node")
    monitor = monitor_of(memory)
    for _ in range(3):
        assert monitor.check().action == "external"
    assert warnings_in(caplog) == [
        "Memory pressure that is not ours, nothing is evicted: "
        "RAM of the node at 99.0 % (threshold 90.0 %, external)"
    ]
    assert memory.models
    assert memory.pressure is not None
    assert not memory.pressure.refuses_work
    assert [pressure.origin for pressure in monitor.pressures] == ["external"]


def test_evictions_that_do_not_help_go_on_after_a_cool_down_that_grows() -> None:
    clock = Clock()
    memory = MemoryOfModels(*(resident(f"m{n}", 8 * GIB, last_used_at=n) for n in range(4)), others=60)
    memory.frees = False  # what they held stays used: 92 of 100
    monitor = monitor_of(memory, clock=clock)
    evicted_at = []
    for _ in range(60):
        before = len(memory.models)
        monitor.check()
        evicted_at += [clock.now - 1000.0] * (before - len(memory.models))
        clock.now += 10.0
    assert evicted_at == [0.0, 30.0, 90.0, 210.0]
    assert memory.pressure is not None
    assert memory.pressure.refuses_work, "all are gone and the pressure stands"


def test_the_cool_down_starts_small_again_after_a_relief() -> None:
    clock = Clock()
    memory = MemoryOfModels(*(resident(f"m{n}", 8 * GIB, last_used_at=n) for n in range(3)), others=68)
    memory.frees = False
    monitor = monitor_of(memory, clock=clock)
    monitor.check()
    assert len(memory.models) == 2
    memory.others = 10
    monitor.check()
    memory.others = 75
    monitor.check()
    assert len(memory.models) == 1, "no cool-down is left over from the first pressure"


def test_a_model_that_a_request_took_meanwhile_stays_and_the_next_one_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = MemoryOfModels(
        resident("taken", 10 * GIB, last_used_at=1), resident("next", 10 * GIB, last_used_at=2), others=79
    )
    memory.taken_meanwhile = {"taken"}
    evict = memory.evict

    def evict_and_lease(identity: ModelIdentity, reason: Literal["memory"], **how: bool) -> Any:
        result = evict(identity, reason, **how)
        if result.had_active_requests:
            memory.models[0] = replace(memory.models[0], active_requests=1)
        return result

    memory.evict = evict_and_lease  # type: ignore[method-assign]
    monitor_of(memory).check()
    assert memory.calls == ["release", "evict taken", "evict next"]
    assert "taken (serve) came into use meanwhile and was not evicted" in warnings_in(caplog)
    assert [model.identity.model_id for model in memory.models] == ["taken"]


def test_the_policy_all_evicts_those_in_use_too_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryOfModels(
        resident("used", 20 * GIB, active=2), resident("pinned", 1 * GIB, pinned=True), others=75
    )
    settings = Settings(device="cpu", oom_eviction="all")
    monitor = monitor_of(memory, settings=settings)
    assert monitor.check().action == "exhausted", "the memory in use goes with its requests"
    assert memory.calls == ["evict used", "evict pinned"]
    assert memory.models == []
    assert memory.pressure is not None and memory.pressure.refuses_work
    assert "used (serve) was evicted while in use; its memory goes with its last request" in warnings_in(
        caplog
    )
    memory.leaving.clear()
    assert monitor.check().action == "nothing"
    assert memory.pressure is None


def test_what_an_unloaded_model_still_holds_counts_as_ours(caplog: pytest.LogCaptureFixture) -> None:
    memory = MemoryOfModels(resident("idle", 1 * GIB), others=60, scope="node")
    memory.leaving.append(resident("leaving", 35 * GIB, active=1))
    assert monitor_of(memory).check().action == "exhausted"
    assert memory.calls == ["release", "evict idle"]


def test_models_on_apples_gpu_are_in_ram() -> None:
    memory = MemoryOfModels(resident("a", 20 * GIB, devices={"mps:0": 20 * GIB}), others=75)
    assert monitor_of(memory).check().action == "nothing"
    assert memory.models == []


@pytest.mark.parametrize(("interval", "pauses"), [(30, [30, 5, 30]), (2, [2, 2, 2])])
def test_while_work_is_refused_the_monitor_looks_again_soon(interval: float, pauses: list[float]) -> None:
    memory, ticks = MemoryOfModels(resident("used", 20 * GIB, active=1), others=75), Ticks()
    settings = Settings(device="cpu", oom_check_interval=interval)
    monitor = monitor_of(memory, settings=settings, wait=ticks.wait)
    monitor.start()
    try:
        eventually(lambda: ticks.asked, timeout=20, interval=0.01)
        ticks.tick()
        memory.others = 10
        ticks.tick()
        assert ticks.asked == pauses
    finally:
        assert monitor.stop(timeout=20)


class Ticks:
    """The thread's wait: each `tick` lets it look once; the interval that it asked for is kept."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.asked: list[float] = []
        self.stopping: Callable[[], bool] = lambda: False

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.asked.append(seconds)
        while not self.go.acquire(timeout=0.01):
            if stop.is_set():
                return True
        return stop.is_set()

    def tick(self) -> None:
        before = len(self.asked)
        self.go.release()
        eventually(lambda: len(self.asked) > before, timeout=10, interval=0.01)


def test_the_thread_looks_at_the_interval_and_ends_when_told() -> None:
    memory, ticks = MemoryOfModels(resident("a", 20 * GIB), others=75), Ticks()
    monitor = MemoryMonitor(
        memory,
        Settings(device="cpu", oom_check_interval=7),
        watch_vram=False,
        probe=memory.readings,
        wait=ticks.wait,
    )
    monitor.start()
    eventually(lambda: ticks.asked, timeout=10, interval=0.01)
    assert memory.models, "nothing happens before the first interval is over"
    ticks.tick()
    assert not memory.models
    assert set(ticks.asked) == {7}
    assert monitor.stop(timeout=10)
    assert not any(thread.name == "memory-monitor" for thread in threading.enumerate())


def test_a_probe_that_raises_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    memory, ticks = MemoryOfModels(resident("a", 20 * GIB), others=75), Ticks()
    failures = [OSError("no /proc")]

    def probe() -> Sequence[Reading]:
        if failures:
            raise failures.pop()
        return memory.readings()

    monitor = MemoryMonitor(memory, SETTINGS, watch_vram=False, probe=probe, wait=ticks.wait)
    monitor.start()
    try:
        eventually(lambda: ticks.asked, timeout=10, interval=0.01)
        ticks.tick()
        assert memory.models
        assert "Memory could not be checked; trying again in 30 s" in warnings_in(caplog)
        ticks.tick()
        assert not memory.models
    finally:
        assert monitor.stop(timeout=10)


def test_a_probe_that_raises_ends_a_refusal_that_nobody_can_check_any_more() -> None:
    memory, ticks = MemoryOfModels(resident("a", 20 * GIB, active=1), others=75), Ticks()
    broken = threading.Event()

    def probe() -> Sequence[Reading]:
        if broken.is_set():
            raise OSError("no /proc")
        return memory.readings()

    monitor = MemoryMonitor(memory, SETTINGS, watch_vram=False, probe=probe, wait=ticks.wait)
    monitor.start()
    try:
        eventually(lambda: ticks.asked, timeout=10, interval=0.01)
        ticks.tick()
        assert memory.pressure is not None and memory.pressure.refuses_work
        broken.set()
        ticks.tick()
        assert memory.pressure is None and monitor.pressures == ()
    finally:
        assert monitor.stop(timeout=10)


def test_the_thread_is_a_daemon_and_starts_once() -> None:
    monitor = MemoryMonitor(MemoryOfModels(), SETTINGS, watch_vram=False)
    monitor.start()
    try:
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "memory-monitor"]
        assert thread.daemon
        with pytest.raises(RuntimeError, match="already started"):
            monitor.start()
    finally:
        assert monitor.stop(timeout=10)


def test_a_stop_before_the_start_is_harmless() -> None:
    assert MemoryMonitor(MemoryOfModels(), SETTINGS, watch_vram=False).stop()


def test_a_stop_ends_a_round_of_evictions_after_the_model_at_hand() -> None:
    memory = MemoryOfModels(*(resident(f"m{n}", 4 * GIB, last_used_at=n) for n in range(5)), others=75)
    monitor = monitor_of(memory)
    evict = memory.evict

    def evict_and_stop(identity: ModelIdentity, reason: Literal["memory"], **how: bool) -> Any:
        monitor.stop()
        return evict(identity, reason, **how)

    memory.evict = evict_and_stop  # type: ignore[method-assign]
    monitor.check()
    assert memory.calls == ["release", "evict m0"]


def test_the_readings_of_this_machine_are_of_ram_only_for_a_process_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_gpu() -> Any:
        raise AssertionError("a process on the CPU asked for GPUs")

    monkeypatch.setattr(resource_metrics, "get_gpu_info", no_gpu)
    (reading,) = read_memory(Settings(device="cpu", oom_ram_threshold=88), watch_vram=False)
    assert (reading.resource, reading.device, reading.threshold_ratio) == ("ram", "cpu", 0.88)
    assert 0 < reading.used_bytes < reading.total_bytes
    monitor = MemoryMonitor(MemoryOfModels(), Settings(device="cpu"), watch_vram=False)
    assert monitor.check().action in {"nothing", "external"}


def test_each_visible_gpu_is_a_reading_of_its_own_and_a_lost_one_is_none(tmp_path: Path) -> None:
    machine = write_machine(
        tmp_path / "machine", {"0": a100(0), "1": a100(1, error=15), "2": a100(2, used_gib=38)}
    )
    program = """
import json
from hf_transformers_backend.memory_readings import read_memory
from hf_transformers_backend.settings import Settings
gpus = [r for r in read_memory(Settings(oom_vram_threshold=95), watch_vram=True) if r.resource == "vram"]
print(json.dumps([[gpu.device, gpu.scope, gpu.is_pressed, gpu.threshold_ratio] for gpu in gpus]))
"""
    assert run_python(program, build_library(tmp_path), machine) == [
        ["cuda:0", "device", False, 0.95],
        ["cuda:2", "device", True, 0.95],
    ]


@pytest.mark.parametrize("watch_vram", [False, True])
def test_only_a_process_that_uses_gpus_watches_them(
    monkeypatch: pytest.MonkeyPatch, watch_vram: bool
) -> None:
    gpu = resource_metrics.GpuMemoryInfo(0, used_bytes=9, free_bytes=0, total_bytes=9)
    monkeypatch.setattr(resource_metrics, "get_gpu_info", lambda: [gpu])
    monitor = MemoryMonitor(MemoryOfModels(), Settings(oom_ram_threshold=100), watch_vram=watch_vram)
    monitor.check()
    assert [pressure.resource for pressure in monitor.pressures] == (["vram"] if watch_vram else [])


def test_apples_ratio_evicts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    full = resource_metrics.GpuMemoryInfo(0, used_bytes=9, free_bytes=0, total_bytes=9, backend="mps")
    monkeypatch.setattr(resource_metrics, "machine", SimpleNamespace(read_gpus=lambda: [full], read_ram=None))
    assert resource_metrics.get_max_vram_used_pct() == 100.0
    monkeypatch.setattr(resource_metrics, "get_ram_info", resource_metrics.Machine().read_ram)
    assert [reading.resource for reading in read_memory(Settings(device="mps"), watch_vram=True)] == ["ram"]
