"""What a scrape says: values, absences, closed labels, and that Prometheus' own linter has nothing to add."""

import asyncio
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hf_transformers_backend.activity import INFERENCE_ROUTES, ActivityTracker
from hf_transformers_backend.cpu import CoreTimes
from hf_transformers_backend.event_loop_lag import EventLoopLag
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.metrics import Metrics, build_metrics
from hf_transformers_backend.residency.views import ResidencySnapshot
from hf_transformers_backend.resource_metrics import GpuMemoryInfo, GpuProbeError, Machine
from hf_transformers_backend.resources_collector import ResourcesCollector
from hf_transformers_backend.settings import Settings
from prometheus_client.parser import text_string_to_metric_families

from tests.support.fake_nvml import a100, build_library, run_python, write_machine
from tests.support.residents import resident, snapshot

GIB = 1024**3
Labels = frozenset[tuple[str, str]]


class Residency:
    def __init__(self, now: ResidencySnapshot) -> None:
        self.now = now

    def snapshot(self) -> ResidencySnapshot:
        return self.now


class Gpus(Machine):
    """The real machine, but for its GPUs."""

    def __init__(self, *gpus: GpuMemoryInfo, failure: Exception | None = None, **sources: Any) -> None:
        super().__init__(**sources)
        self.gpus, self.failure = list(gpus), failure

    def read_gpus(self) -> list[GpuMemoryInfo]:
        if self.failure is not None:
            raise self.failure
        return self.gpus


def metrics_of(*models: Any, machine: Machine | None = None, ready: bool = True, **changes: Any) -> Metrics:
    pressures = changes.pop("pressures", None)
    return build_metrics(
        Residency(snapshot(*models, **changes)),
        ActivityTracker(),
        Settings(oom_ram_threshold=88),
        lambda: ready,
        pressures=None if pressures is None else lambda: pressures,
        machine=machine or Gpus(),
    )


def scrape(metrics: Metrics) -> dict[str, dict[Labels, float]]:
    samples: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return samples


def labels(**pairs: str) -> Labels:
    return frozenset(pairs.items())


def test_a_resident_model_is_a_one_and_a_model_that_left_is_no_series() -> None:
    residency = Residency(
        snapshot(
            resident("org/chat", 7, served_name="chat", revision="v2", last_used_at=123.0, active=2),
            resident("org/encoder", kind="embedding"),
        )
    )
    metrics = build_metrics(residency, ActivityTracker(), Settings(), lambda: True, machine=Gpus())
    chat, encoder = (
        labels(model="chat", revision="v2", kind="serve"),
        labels(model="org/encoder", revision="", kind="embedding"),
    )
    found = scrape(metrics)
    assert found["flexserv_model_loaded"] == {chat: 1.0, encoder: 1.0}
    assert found["flexserv_model_last_used_timestamp_seconds"][chat] == 123.0
    assert found["flexserv_model_active_requests"][chat] == 2.0
    assert found["flexserv_model_memory_bytes"][chat] == 7.0
    residency.now = snapshot()
    assert "flexserv_model_loaded" not in scrape(metrics)


def test_counters_with_closed_labels_start_at_zero() -> None:
    found = scrape(metrics_of(evictions={"memory": 3}, loads={"loaded": 2}))
    assert found["flexserv_model_evictions_total"] == {
        labels(reason=reason): float(3 if reason == "memory" else 0)
        for reason in ("idle", "manual", "memory", "room", "replaced", "shutdown")
    }
    assert found["flexserv_model_loads_total"] == {
        labels(outcome="loaded"): 2.0,
        labels(outcome="failed"): 0.0,
        labels(outcome="aborted"): 0.0,
    }
    assert found["flexserv_streams_aborted_total"] == {labels(): 0.0}
    assert found["flexserv_requests_in_flight"] == {labels(route=route): 0.0 for route in INFERENCE_ROUTES}


def test_load_durations_are_a_histogram() -> None:
    found = scrape(metrics_of(load_seconds=(0.5, 3.0, 4000.0)))
    buckets = found["flexserv_model_load_duration_seconds_bucket"]
    assert [buckets[labels(le=bound)] for bound in ("0.5", "5.0", "1800.0", "+Inf")] == [1, 2, 2, 3]
    assert found["flexserv_model_load_duration_seconds_sum"][labels()] == 4003.5


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_is_told(ready: bool) -> None:
    assert scrape(metrics_of(ready=ready))["flexserv_ready"][labels()] == float(ready)


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


def write_limited_container(root: Path) -> None:
    own, cgroup = root / "proc/self", root / "sys/fs/cgroup"
    own.mkdir(parents=True)
    cgroup.mkdir(parents=True)
    (own / "cgroup").write_text("0::/\n")
    (own / "mountinfo").write_text("24 1 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    (own / "status").write_text("RssFile:\t0 kB\n")
    (cgroup / "memory.max").write_text(f"{GIB}\n")
    (cgroup / "memory.current").write_text(f"{GIB // 2}\n")
    (cgroup / "memory.stat").write_text(f"anon {GIB // 4}\ninactive_file {GIB // 8}\n")


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


HEALTHY = GpuMemoryInfo(0, 30 * GIB, 10 * GIB, 40 * GIB, 87.0, 68.0, 312.1, uuid="GPU-a", name="A100")


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


def test_a_cache_that_does_not_exist_yet_is_measured_where_it_will_be(tmp_path: Path) -> None:
    families = {
        family.name: family.samples[0].value
        for family in ResourcesCollector(Gpus(), cache=tmp_path / "not" / "yet").collect()
        if family.name.startswith("flexserv_cache")
    }
    usage = shutil.disk_usage(tmp_path)
    assert families["flexserv_cache_free_bytes"] == pytest.approx(usage.free, rel=0.05)
    assert set(families) == {"flexserv_cache_free_bytes", "flexserv_cache_used_bytes"}


def test_pressure_is_told_by_resource_and_origin_and_only_when_a_monitor_looks() -> None:
    assert "flexserv_memory_pressure" not in scrape(metrics_of())
    pressure = Pressure("vram", "cuda:0", "device", "external", 0.99, 0.9)
    assert scrape(metrics_of(pressures=[pressure]))["flexserv_memory_pressure"] == {
        labels(resource="ram", origin="own"): 0.0,
        labels(resource="ram", origin="external"): 0.0,
        labels(resource="vram", origin="own"): 0.0,
        labels(resource="vram", origin="external"): 1.0,
    }


def model_labels(found: dict[str, dict[Labels, float]], name: str) -> set[str]:
    return {dict(sample)["model"] for sample in found[name]}


def test_only_declared_and_resident_models_are_labels() -> None:
    metrics = metrics_of(resident("here"), declared_labels=frozenset({"declared"}))
    for name in ("here", "declared", "minted-by-a-client", None):
        metrics.requests.observe_request("/v1/completions", 200, name, False, 0.1)
        metrics.requests.count_tokens(name, prompt=5, generated=2)
        metrics.requests.observe_first_token(name, True, 0.1)
    metrics.requests.observe_request("/made/up", 404, None, False, 0.1)
    found = scrape(metrics)
    for name in (
        "flexserv_request_duration_seconds_count",
        "flexserv_generated_tokens_total",
        "flexserv_time_to_first_token_seconds_count",
    ):
        assert model_labels(found, name) == {"here", "declared", "other"}
    assert found["flexserv_prompt_tokens_total"][labels(model="other")] == 10.0
    assert {dict(sample)["route"] for sample in found["flexserv_request_duration_seconds_count"]} == {
        "/v1/completions",
        "other",
    }


def test_the_counters_of_a_model_stay_when_it_has_left() -> None:
    residency = Residency(snapshot(resident("org/m")))
    metrics = build_metrics(residency, ActivityTracker(), Settings(), lambda: True, machine=Gpus())
    metrics.requests.count_tokens("org/m", generated=3)
    residency.now = snapshot()
    metrics.requests.count_tokens("org/m", generated=4)
    assert scrape(metrics)["flexserv_generated_tokens_total"] == {labels(model="org/m"): 7.0}


def test_requests_that_waited_for_a_load_are_kept_apart() -> None:
    metrics = metrics_of(resident("m"))
    metrics.requests.observe_request(INFERENCE_ROUTES[0], 200, "m", True, 40)
    metrics.requests.observe_request(INFERENCE_ROUTES[0], 200, "m", False, 0.2)
    sums = scrape(metrics)["flexserv_request_duration_seconds_sum"]
    assert {dict(sample)["cold"]: value for sample, value in sums.items()} == {"true": 40.0, "false": 0.2}


def test_waiting_requests_are_counted_while_they_wait() -> None:
    metrics = metrics_of()
    with metrics.requests.waiting, metrics.requests.waiting:
        assert scrape(metrics)["flexserv_requests_waiting"][labels()] == 2.0
    assert scrape(metrics)["flexserv_requests_waiting"][labels()] == 0.0
    with pytest.raises(LookupError), metrics.requests.waiting:
        raise LookupError
    assert scrape(metrics)["flexserv_requests_waiting"][labels()] == 0.0


def test_two_apps_in_one_process_do_not_meet() -> None:
    first, second = metrics_of(), metrics_of()
    first.requests.stream_aborted()
    assert scrape(second)["flexserv_streams_aborted_total"][labels()] == 0.0


def test_building_reads_neither_models_nor_machine() -> None:
    class Untouchable(Machine):
        def read_ram(self) -> Any:
            raise AssertionError("read at construction")

    class Unreadable:
        def snapshot(self) -> ResidencySnapshot:
            raise AssertionError("read at construction")

    build_metrics(Unreadable(), ActivityTracker(), Settings(), lambda: True, machine=Untouchable())


def test_versions_are_told() -> None:
    (build,) = scrape(metrics_of())["flexserv_build_info"]
    assert set(dict(build)) == {"version", "transformers", "torch", "python"}
    assert dict(build)["transformers"].startswith("5.24")


async def test_a_blocked_event_loop_shows_while_it_is_blocked_and_after() -> None:
    now = SimpleNamespace(seconds=100.0)
    lag = EventLoopLag(interval=0.001, clock=lambda: now.seconds)
    assert lag.seconds() is None
    lag.start()
    await asyncio.sleep(0)
    now.seconds += 2.0  # the loop does nothing meanwhile
    assert lag.seconds() == pytest.approx(2.0, abs=0.01)
    async with asyncio.timeout(10):
        while not lag._late:
            await asyncio.sleep(0.001)
    assert lag.seconds() == pytest.approx(2.0, abs=0.01)
    await lag.stop()
    assert lag.seconds() is None
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "event-loop-lag"]


def promtool() -> str:
    cache = Path(os.environ.get("FLEXSERV_CACHE", Path.home() / ".cache/flexserv"))
    found = shutil.which(
        "promtool", path=f"{cache / 'debian/usr/bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    )
    assert found, f"promtool is missing: put Debian's prometheus package into {cache / 'debian'} or on PATH"
    return found


def everything(tmp_path: Path) -> Metrics:
    """A scrape with every family in it."""
    write_limited_container(tmp_path)
    times = [CoreTimes(0.0, 0.0), CoreTimes(1.0, 4.0)]
    machine = Gpus(
        HEALTHY,
        root=tmp_path,
        cpu_times=lambda: [times.pop(0) if times else CoreTimes(1, 4)],
    )
    machine.cpu_sampler._clock = iter(range(100)).__next__
    pressures: Sequence[Pressure] = [Pressure("ram", "cpu", "container", "own", 0.95, 0.9)]
    metrics = metrics_of(
        resident("m"), machine=machine, pressures=pressures, load_seconds=(1.0,), loads={"loaded": 1}
    )
    metrics.event_loop_lag._due = time.monotonic()
    metrics.requests.observe_request(INFERENCE_ROUTES[0], 200, "m", False, 0.1)
    metrics.requests.observe_first_token("m", False, 0.1)
    metrics.requests.observe_queue_wait(0.1)
    metrics.requests.count_tokens("m", prompt=1, generated=1)
    metrics.render()
    return metrics


SERIES = [
    "gpu_memory_used_bytes",
    "gpu_memory_free_bytes",
    "gpu_memory_total_bytes",
    "gpu_memory_used_ratio",
    "gpu_utilization_ratio",
    "gpu_temperature_celsius",
    "gpu_power_watts",
    "gpu_info",
    "cpu_utilization_ratio",
    "memory_used_bytes",
    "memory_available_bytes",
    "memory_total_bytes",
    "memory_used_ratio",
    "container_memory_limit_bytes",
    "container_memory_working_set_bytes",
    "container_memory_unreclaimable_bytes",
    "oom_threshold_ratio",
    "memory_pressure",
    "cache_used_bytes",
    "cache_free_bytes",
    "model_loaded",
    "model_last_used_timestamp_seconds",
    "model_active_requests",
    "model_load_duration_seconds_bucket",
    "model_loads_total",
    "model_evictions_total",
    "requests_in_flight",
    "requests_waiting",
    "request_duration_seconds_bucket",
    "queue_wait_seconds_bucket",
    "time_to_first_token_seconds_bucket",
    "generated_tokens_total",
    "prompt_tokens_total",
    "streams_aborted_total",
    "ready",
    "event_loop_lag_seconds",
    "build_info",
    "resources_collect_success",
    "resources_collect_duration_seconds",
    "resources_last_success_timestamp_seconds",
]


def test_every_promised_series_is_there(tmp_path: Path) -> None:
    found = scrape(everything(tmp_path))
    assert [name for name in SERIES if f"flexserv_{name}" not in found] == []
    assert not [name for name in found if ":" in name or name.endswith("_created")]
    foreign = {"pod", "namespace", "container", "instance", "job"}
    assert not [
        name
        for name, values in found.items()
        for sample in values
        if foreign & {label for label, _ in sample}
    ]


def test_prometheus_own_linter_has_nothing_to_say(tmp_path: Path) -> None:
    text = everything(tmp_path).render()
    done = subprocess.run(
        [promtool(), "check", "metrics"], input=text, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, (done.stdout + done.stderr).decode()) == (0, "")


def test_a_scrape_with_ten_models_and_eight_gpus_is_quick(tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {str(n): a100(n) for n in range(8)})
    program = f"""
import json, sys, time
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from hf_transformers_backend.activity import ActivityTracker
from hf_transformers_backend.metrics import build_metrics
from hf_transformers_backend.settings import Settings
from tests.support.residents import resident, snapshot
class Residency:
    def snapshot(self):
        return snapshot(*(resident(f"org/model-{{n}}", n) for n in range(10)))
metrics = build_metrics(Residency(), ActivityTracker(), Settings(), lambda: True)
times = []
for _ in range(50):
    started = time.thread_time()
    text = metrics.render()
    times.append(time.thread_time() - started)
print(json.dumps([sorted(times)[len(times) // 2], text.decode().count("flexserv_gpu_memory_used_bytes{{")]))
"""
    median, gpus = run_python(program, build_library(tmp_path), machine)
    assert gpus == 8
    assert median < 0.02
