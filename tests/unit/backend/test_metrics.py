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

import httpx
import pytest
from fastapi import FastAPI
from hf_transformers_backend.activity import INFERENCE_ROUTES, ActivityTracker
from hf_transformers_backend.cpu import CoreTimes
from hf_transformers_backend.event_loop_lag import EventLoopLag
from hf_transformers_backend.eviction import Pressure
from hf_transformers_backend.metrics import Metrics, build_metrics
from hf_transformers_backend.request_metrics import MOST_MODELS
from hf_transformers_backend.residency.views import LoadTimes, ResidencySnapshot
from hf_transformers_backend.resource_metrics import Machine
from hf_transformers_backend.routes.meta import build_router
from hf_transformers_backend.settings import Settings

from tests.support.fake_nvml import a100, build_library, run_python, write_machine
from tests.support.residents import resident, snapshot
from tests.support.scrapes import (
    HEALTHY,
    Gpus,
    Labels,
    Residency,
    labels,
    metrics_of,
    scrape,
    write_limited_container,
)


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
    found = scrape(metrics_of(load_times=LoadTimes().plus(0.5).plus(3.0).plus(4000.0)))
    buckets = found["flexserv_model_load_duration_seconds_bucket"]
    assert [buckets[labels(le=bound)] for bound in ("0.5", "5.0", "1800.0", "+Inf")] == [1, 2, 2, 3]
    assert found["flexserv_model_load_duration_seconds_sum"][labels()] == 4003.5


@pytest.mark.parametrize("ready", [True, False])
def test_readiness_is_told(ready: bool) -> None:
    assert scrape(metrics_of(ready=ready))["flexserv_ready"][labels()] == float(ready)


def test_pressure_is_told_by_resource_and_origin_and_only_when_a_monitor_looks() -> None:
    assert "flexserv_memory_pressure" not in scrape(metrics_of())
    pressure = Pressure("vram", "cuda:0", "device", "external", 0.99, 0.9)
    assert scrape(metrics_of(pressures=[pressure]))["flexserv_memory_pressure"] == {
        labels(resource="ram", origin="own"): 0.0,
        labels(resource="ram", origin="external"): 0.0,
        labels(resource="vram", origin="own"): 0.0,
        labels(resource="vram", origin="external"): 1.0,
    }


def test_memory_that_evicting_could_not_relieve_is_told() -> None:
    def told(refuses_work: bool) -> dict[Labels, float]:
        pressure = Pressure("ram", "cpu", "container", "own", 0.97, 0.9, refuses_work=refuses_work)
        return scrape(metrics_of(pressures=[pressure]))["flexserv_memory_exhausted"]

    assert told(False) == {labels(resource="ram"): 0.0, labels(resource="vram"): 0.0}
    assert told(True) == {labels(resource="ram"): 1.0, labels(resource="vram"): 0.0}


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


def test_the_labels_of_one_process_have_a_bound() -> None:
    metrics = metrics_of(*(resident(f"m{number}") for number in range(MOST_MODELS + 50)))
    for number in range(MOST_MODELS + 50):
        metrics.requests.count_tokens(f"m{number}", generated=1)
    found = scrape(metrics)["flexserv_generated_tokens_total"]
    assert len(found) == MOST_MODELS + 1
    assert found[labels(model="other")] == 50.0


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
        resident("m"),
        machine=machine,
        pressures=pressures,
        load_times=LoadTimes().plus(1.0),
        loads={"loaded": 1},
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
    "memory_exhausted",
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


async def test_a_scrape_that_hangs_holds_up_nothing_else_on_the_event_loop() -> None:
    answer, asked = threading.Event(), threading.Event()

    class Hanging(Gpus):
        def read_ram(self) -> Any:
            asked.set()
            answer.wait(60)
            return super().read_ram()

    backend: Any = SimpleNamespace(
        metrics=metrics_of(machine=Hanging()), residency=None, lifecycle=SimpleNamespace(fault=None)
    )
    app = FastAPI()
    app.include_router(build_router(backend))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        scraping = asyncio.ensure_future(client.get("/metrics"))
        try:
            async with asyncio.timeout(30):
                while not asked.is_set():
                    await asyncio.sleep(0.01)
                assert (await client.get("/health")).status_code == 200
            assert not scraping.done()
        finally:
            answer.set()
        assert "flexserv_memory_used_bytes" in (await scraping).text
