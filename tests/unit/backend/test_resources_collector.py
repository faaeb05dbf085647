"""Memory, CPU, GPUs and the cache's disk in a scrape: values, absences, and sources that fail or hang."""

import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hf_transformers_backend.activity import ActivityTracker
from hf_transformers_backend.cache_disk import CacheDisk, make_folder
from hf_transformers_backend.cpu import CoreTimes
from hf_transformers_backend.metrics import build_metrics
from hf_transformers_backend.resource_metrics import GpuMemoryInfo, GpuProbeError
from hf_transformers_backend.resources_collector import ResourcesCollector
from hf_transformers_backend.settings import Settings

from tests.support.eventually import eventually
from tests.support.residents import snapshot
from tests.support.scrapes import (
    GIB,
    HEALTHY,
    Gpus,
    Residency,
    labels,
    metrics_of,
    scrape,
    write_limited_container,
)


def test_memory_is_told_in_bytes_and_adds_up() -> None:
    found = scrape(metrics_of())
    used, available, total = (
        found[f"flexserv_memory_{name}_bytes"][labels()] for name in ("used", "available", "total")
    )
    assert used + available == total
    assert found["flexserv_memory_used_ratio"][labels(scope="node")] == pytest.approx(used / total)
    assert found["flexserv_oom_threshold_ratio"] == {
        labels(resource="ram"): 0.88,
        labels(resource="vram"): 0.9,
    }


def test_a_containers_memory_is_told_only_where_a_limit_binds(tmp_path: Path) -> None:
    unlimited = scrape(metrics_of(machine=Gpus(root=tmp_path)))
    assert not [name for name in unlimited if "container" in name]
    write_limited_container(tmp_path)
    limited = scrape(metrics_of(machine=Gpus(root=tmp_path)))
    told = {
        name: limited[f"flexserv_container_memory_{name}_bytes"][labels()]
        for name in ("limit", "working_set")
    }
    assert told == {"limit": GIB, "working_set": GIB // 2 - GIB // 8}
    assert limited["flexserv_container_memory_unreclaimable_bytes"][labels()] == GIB // 4
    assert limited["flexserv_memory_used_ratio"][labels(scope="container")] == 0.25


def test_a_gpu_is_told_in_base_units() -> None:
    found = scrape(metrics_of(machine=Gpus(HEALTHY)))
    gpu = labels(gpu="0", uuid="GPU-a")
    assert {name: values[gpu] for name, values in found.items() if gpu in values} == {
        "flexserv_gpu_memory_used_bytes": 30 * GIB,
        "flexserv_gpu_memory_free_bytes": 10 * GIB,
        "flexserv_gpu_memory_total_bytes": 40 * GIB,
        "flexserv_gpu_memory_used_ratio": 0.75,
        "flexserv_gpu_utilization_ratio": pytest.approx(0.87),
        "flexserv_gpu_temperature_celsius": 68.0,
        "flexserv_gpu_power_watts": 312.1,
    }
    (info,) = found["flexserv_gpu_info"]
    assert dict(info) == {"gpu": "0", "uuid": "GPU-a", "name": "A100", "driver": "", "mig": "false"}


def test_sensors_that_a_gpu_lacks_and_gpus_that_are_lost_are_no_series() -> None:
    bare = GpuMemoryInfo(0, 1 * GIB, 3 * GIB, 4 * GIB, uuid="GPU-bare")
    lost = GpuMemoryInfo(1, uuid="GPU-lost", error="GPU is lost")
    found = scrape(metrics_of(machine=Gpus(bare, lost)))
    assert found["flexserv_gpu_memory_used_bytes"] == {labels(gpu="0", uuid="GPU-bare"): GIB}
    assert "flexserv_gpu_temperature_celsius" not in found
    assert len(found["flexserv_gpu_info"]) == 2
    assert found["flexserv_resources_collect_success"][labels()] == 0.0, "a lost GPU is a failure"


def test_without_gpus_there_is_no_gpu_series() -> None:
    found = scrape(metrics_of())
    assert not [name for name in found if name.startswith("flexserv_gpu")]
    assert found["flexserv_resources_collect_success"][labels()] == 1.0


def test_a_driver_that_fails_shows_in_success_and_takes_nothing_else_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Gpus(HEALTHY)
    metrics = metrics_of(machine=machine)
    before = scrape(metrics)["flexserv_resources_last_success_timestamp_seconds"][labels()]
    machine.failure = GpuProbeError("NVML: driver mismatch")
    for _ in range(2):
        found = scrape(metrics)
        assert found["flexserv_resources_collect_success"][labels()] == 0.0
        assert found["flexserv_resources_last_success_timestamp_seconds"][labels()] == before
        assert "flexserv_memory_used_bytes" in found
        assert "flexserv_gpu_memory_used_bytes" not in found
    assert len(caplog.records) == 1, "a failure that lasts is logged once"
    assert "driver mismatch" in caplog.text
    machine.failure = None
    assert scrape(metrics)["flexserv_resources_collect_success"][labels()] == 1.0


def test_a_driver_that_hangs_delays_a_scrape_by_a_bounded_time_and_takes_one_thread() -> None:
    answer = threading.Event()

    class Hanging(Gpus):
        def read_gpus(self) -> list[GpuMemoryInfo]:
            answer.wait(60)
            return [HEALTHY]

    collector = ResourcesCollector(Hanging(), patience=0.1)

    def collected() -> dict[str, float]:
        return {family.name: family.samples[0].value for family in collector.collect() if family.samples}

    def asking() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "sensor-GPUs"]

    try:
        for _ in range(3):
            found = collected()
            assert found["flexserv_resources_collect_success"] == 0.0
            assert "flexserv_gpu_memory_used_bytes" not in found, "silence is not 0"
            assert "flexserv_memory_used_bytes" in found
        assert len(asking()) == 1
    finally:
        answer.set()
    collector = ResourcesCollector(Hanging(), patience=30)
    assert collected()["flexserv_gpu_memory_used_bytes"] == 30 * GIB
    assert eventually(lambda: not asking(), 20)


def test_before_the_first_success_there_is_no_time_of_it() -> None:
    found = scrape(metrics_of(machine=Gpus(failure=GpuProbeError("no"))))
    assert "flexserv_resources_last_success_timestamp_seconds" not in found


def test_a_scrape_waits_for_no_cpu_window() -> None:
    machine = Gpus()
    metrics = metrics_of(machine=machine)
    metrics.render()
    holding, release = threading.Event(), threading.Event()

    def hold(seconds: float) -> None:
        holding.set()
        release.wait(30)

    machine.cpu_sampler._wait = hold
    measuring = threading.Thread(target=machine.cpu_sampler.measure, args=(0.2,))
    measuring.start()
    try:
        assert holding.wait(10)
        started = time.monotonic()
        metrics.render()
        assert time.monotonic() - started < 5, "the scrape waited for somebody's window"
    finally:
        release.set()
        measuring.join(10)


def test_each_core_is_told_from_the_second_scrape_on() -> None:
    now = SimpleNamespace(busy=0.0, total=0.0)
    machine = Gpus(cpu_times=lambda: [CoreTimes(now.busy, now.total)])
    machine.cpu_sampler._clock = lambda: now.total
    metrics = metrics_of(machine=machine)
    assert "flexserv_cpu_utilization_ratio" not in scrape(metrics)
    now.busy, now.total = 1.0, 4.0
    assert scrape(metrics)["flexserv_cpu_utilization_ratio"] == {labels(cpu="0"): 0.25}


def test_all_cores_can_be_one_series() -> None:
    now = SimpleNamespace(seconds=0.0)
    machine = Gpus(cpu_times=lambda: [CoreTimes(now.seconds, now.seconds), CoreTimes(0.0, now.seconds)])
    machine.cpu_sampler._clock = lambda: now.seconds
    metrics = build_metrics(
        Residency(snapshot()),
        ActivityTracker(),
        Settings(per_core_cpu_metrics=False),
        lambda: True,
        machine=machine,
    )
    assert "flexserv_cpu_utilization_ratio" not in scrape(metrics)
    now.seconds = 5.0
    assert scrape(metrics)["flexserv_cpu_utilization_ratio"] == {labels(cpu="all"): 0.5}


def test_a_cache_that_does_not_exist_yet_is_measured_where_it_will_be(tmp_path: Path) -> None:
    families = {
        family.name: family.samples[0].value
        for family in ResourcesCollector(Gpus(), cache=tmp_path / "not" / "yet").collect()
        if family.name.startswith("flexserv_cache")
    }
    usage = shutil.disk_usage(tmp_path)
    assert families["flexserv_cache_free_bytes"] == pytest.approx(usage.free, rel=0.05)
    assert set(families) == {"flexserv_cache_free_bytes", "flexserv_cache_used_bytes"}


def test_a_cache_with_a_limit_is_measured_against_it(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"x" * 100_000)
    limited = ResourcesCollector(Gpus(), cache=tmp_path, cache_limit=1_000_000)
    families = {family.name: family.samples[0].value for family in limited.collect() if family.samples}
    used = families["flexserv_cache_used_bytes"]
    assert 100_000 <= used < 200_000
    assert families["flexserv_cache_free_bytes"] == 1_000_000 - used
    full = ResourcesCollector(Gpus(), cache=tmp_path, cache_limit=1000)
    assert next(f for f in full.collect() if f.name == "flexserv_cache_free_bytes").samples[0].value == 0


def test_the_files_of_the_cache_are_added_up_once_a_minute(tmp_path: Path) -> None:
    now = SimpleNamespace(seconds=0.0)
    disk = CacheDisk(tmp_path, 10**9, clock=lambda: now.seconds)
    before = disk.usage().used
    (tmp_path / "blob").write_bytes(b"x" * 100_000)
    now.seconds = 59.0
    assert disk.usage().used == before
    now.seconds = 60.0
    assert disk.usage().used >= before + 100_000


def test_a_cache_that_cannot_be_made_is_told_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    caplog.set_level("INFO")
    make_folder(tmp_path / "file" / "hub")
    assert "hub cannot be made: Not a directory" in caplog.text
    make_folder(tmp_path / "new" / "hub")
    make_folder(tmp_path / "new" / "hub")
    assert (tmp_path / "new" / "hub").is_dir()
