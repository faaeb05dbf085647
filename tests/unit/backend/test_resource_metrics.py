"""The public face: what the five functions tell, and how amounts are rounded."""

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hf_transformers_backend import resource_metrics
from hf_transformers_backend.cgroup import ContainerMemory
from hf_transformers_backend.cpu import CoreTimes, CpuCoreInfo, CpuSampler
from hf_transformers_backend.gpu import GpuMemoryInfo
from hf_transformers_backend.resource_metrics import Machine, RamInfo, SystemResourceSnapshot

from tests.support.eventually import eventually

GIB = 1024**3


def ram(total: float, available: float, container: ContainerMemory | None = None) -> RamInfo:
    machine = Machine(
        virtual_memory=lambda: SimpleNamespace(total=int(total * GIB), available=int(available * GIB)),
        root=Path("/nowhere"),
    )
    info = machine.read_ram()
    return RamInfo(info.used_bytes, info.available_bytes, info.total_bytes, container)


def test_used_is_total_less_available_and_free_is_available() -> None:
    info = ram(total=64, available=24.96)
    assert info.to_dict() == {"used_percentage": 61.0, "used_gb": 39.0, "free_gb": 25.0, "total_gb": 64.0}
    assert info.used_bytes + info.available_bytes == info.total_bytes


def test_the_resources_have_the_keys_of_the_endpoint_and_no_others() -> None:
    gpu = GpuMemoryInfo(0, 21 * GIB, 19 * GIB, 40 * GIB, 87.0, 68.0, 312.1, uuid="GPU-x", name="A100")
    body = SystemResourceSnapshot(ram(64, 25), [CpuCoreInfo(0, 14.2), CpuCoreInfo(1, 9.8)], [gpu]).to_dict()
    assert list(body) == ["gpu", "cpu", "memory"]
    assert body["cpu"] == [{"cpu_id": 0, "used_percentage": 14.2}, {"cpu_id": 1, "used_percentage": 9.8}]
    assert list(body["gpu"][0]) == [
        "gpu_id",
        "used_percentage",
        "used_gb",
        "free_gb",
        "total_gb",
        "gpu_utilization_percentage",
        "temperature_celsius",
        "power_watts",
    ]


def test_a_limited_container_stands_beside_the_nodes_memory_and_decides() -> None:
    limited = ram(64, 60, ContainerMemory(8 * GIB, 7 * GIB, 5 * GIB, 6 * GIB))
    body = SystemResourceSnapshot(limited, [], []).to_dict()
    assert body["memory"]["total_gb"] == 64.0
    assert body["container"] == {"used_percentage": 75.0, "used_gb": 6.0, "free_gb": 2.0, "total_gb": 8.0}
    assert (limited.scope, limited.decisive_used_bytes, limited.decisive_total_bytes) == (
        "container",
        6 * GIB,
        8 * GIB,
    )


def test_without_a_limit_the_node_decides() -> None:
    free = ram(64, 60)
    assert (free.scope, free.decisive_used_bytes, free.decisive_total_bytes) == ("node", 4 * GIB, 64 * GIB)


def test_this_machine_adds_up() -> None:
    body = resource_metrics.get_system_resources(0.05).to_dict()
    memory = body["memory"]
    assert abs(memory["used_gb"] + memory["free_gb"] - memory["total_gb"]) <= 0.11
    assert memory["used_percentage"] == pytest.approx(100 * memory["used_gb"] / memory["total_gb"], abs=1.0)
    assert len(body["cpu"]) == psutil.cpu_count()
    assert all(0.0 <= core["used_percentage"] <= 100.0 for core in body["cpu"])


def test_only_one_module_imports_psutil_and_pynvml() -> None:
    importers = {
        path.name
        for path in Path(resource_metrics.__file__).parent.rglob("*.py")
        if re.search(r"^\s*(import|from) (psutil|pynvml)\b", path.read_text(), re.MULTILINE)
    }
    assert importers == {"resource_metrics.py"}


class Cores:
    """Two cores whose counters a test moves; also the clock, and a wait that lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self.busy = 0.0
        self.waits: list[float] = []

    def read(self) -> list[CoreTimes]:
        return [CoreTimes(self.busy, self.now), CoreTimes(self.now, self.now)]

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
        self.busy += seconds / 4

    def sampler(self) -> CpuSampler:
        return CpuSampler(self.read, clock=lambda: self.now, wait=self.wait)


def test_a_measurement_tells_the_busy_share_of_its_window() -> None:
    cores = Cores()
    assert cores.sampler().measure(0.2) == [CpuCoreInfo(0, 25.0), CpuCoreInfo(1, 100.0)]
    assert cores.waits == [0.2]


def test_callers_that_come_together_share_one_window() -> None:
    inside, go_on = threading.Event(), threading.Event()
    windows: list[float] = []

    def wait(seconds: float) -> None:
        windows.append(seconds)
        inside.set()
        assert go_on.wait(10)

    cores = Cores()
    sampler = CpuSampler(cores.read, clock=lambda: cores.now, wait=wait)
    found: list[Any] = []
    callers = [threading.Thread(target=lambda: found.append(sampler.measure(0.2))) for _ in range(4)]
    callers[0].start()
    assert inside.wait(10)
    for caller in callers[1:]:
        caller.start()
    go_on.set()
    for caller in callers:
        caller.join(10)
    assert len(found) == 4
    assert windows == [0.2]


def test_a_later_caller_gets_a_window_of_its_own() -> None:
    cores = Cores()
    sampler = cores.sampler()
    sampler.measure(0.2)
    cores.now += 5
    sampler.measure(0.2)
    assert cores.waits == [0.2, 0.2]


def test_a_scrape_gets_what_passed_since_the_one_before_and_never_waits() -> None:
    cores = Cores()
    sampler = cores.sampler()
    assert sampler.recent() == []
    cores.now, cores.busy = 10.0, 1.0
    assert sampler.recent()[0] == CpuCoreInfo(0, 10.0)
    cores.now, cores.busy = 10.05, 1.05
    assert sampler.recent()[0] == CpuCoreInfo(0, 10.0), "too short a time to tell anything new"
    assert cores.waits == []


def test_a_real_busy_core_shows() -> None:
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1000))

    worker = threading.Thread(target=burn)
    worker.start()
    try:
        eventually(
            lambda: max(core.used_percentage for core in resource_metrics.get_cpu_info(0.1)) > 20, timeout=10
        )
    finally:
        stop.set()
        worker.join(10)


def test_a_driver_that_hangs_does_not_hold_up_who_merely_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def hang() -> list[GpuMemoryInfo]:
        assert answered.wait(20), "somebody waited for the driver to the end"
        return []

    monkeypatch.setattr(resource_metrics, "get_gpu_info", hang)
    try:
        assert resource_metrics.get_system_resources(0.05).gpu == []
    finally:
        answered.set()
