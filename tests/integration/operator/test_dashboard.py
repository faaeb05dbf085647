"""Every panel of the Grafana dashboard shows what happened.

A real Prometheus scrapes the real backend and the real operator.
"""

import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from hf_transformers_backend.request_metrics import FIRST_TOKEN_BUCKETS, REQUEST_BUCKETS
from huggingface_hub.constants import HF_HUB_CACHE
from prometheus import Prometheus, scraping

from tests.support.eventually import eventually
from tests.support.fake_nvml import GIB, a100, build_library, write_machine
from tests.support.operator_world import SERVICE, Operator, World
from tests.support.panels import Check, Dashboard, between, bucket_of, exactly, grew, labeled
from tests.support.server import RunningServer

DASHBOARD = Path(__file__).parents[3] / "charts" / "flexserv" / "files" / "dashboard.json"
ADDRESS = "127.0.0.77"
WINDOW_S = 600
"""What $__rate_interval becomes: longer than the test, so that every request is in it."""
RAM_THRESHOLD = 99.5
CHATS, TOKENS, REFUSED = 12, 5, 3
CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
ENDLESS = {
    "model": "slow",
    "prompt": "Once",
    "max_tokens": 8000,
    "stream": True,
    "logit_bias": {"0": -100, "2": -100},
}
"""Never the end of a text: both tokens that could be it are ruled out."""


@pytest.mark.timeout(400)
def test_every_panel_shows_what_happened(world: World, models: Path, tmp_path: Path) -> None:
    with the_real_pod(world, tmp_path) as server:
        operator = world.start_operator(tick_seconds="1")
        backend = server.base_url.removeprefix("http://")
        targets = {"flexserv": backend, "flexserv-operator": f"127.0.0.1:{operator.metrics_port}"}
        eventually(lambda: operator.get(operator.metrics_port, "/metrics").is_success, 30)
        with scraping(targets) as prometheus:
            eventually(lambda: sum(prometheus.query("up").values()) == 2, 60)
            eventually(lambda: prometheus.query("flexserv_operator_loads_total"), 60)
            declare(world, models)
            warm_up(server, prometheus)
            asked = ask(server)
            with a_busy_model(server):
                until_scraped(prometheus, server)
                eventually(lambda: fewest_samples(prometheus) >= 5, 60)
                told = Told(server, operator, backend, asked)
                # A scrape that comes too late on a busy machine leaves a gap for a second.
                eventually(lambda: judge(prometheus, told.panels()), 120, interval=1)


@contextmanager
def the_real_pod(world: World, folder: Path) -> Iterator[RunningServer]:
    """A pod whose address is a real backend's, on a machine with two GPUs."""
    container = {
        "name": "backend",
        "image": "none",
        "ports": [{"name": "http", "containerPort": world.fleet.port}],
    }
    body = {
        "metadata": {"name": "backend-0", "labels": {"app": SERVICE}},
        "spec": {"nodeName": "nowhere", "containers": [container]},
    }
    uid = world.plane.call("POST", f"{world.core}/pods", body)["metadata"]["uid"]
    machine = write_machine(folder / "machine", {"0": a100(0, used_gib=30), "1": a100(1, used_gib=10)})
    flags = ("--host", ADDRESS, "--port", str(world.fleet.port), "--device", "cpu", "--on-demand", "declared",
             "--oom-monitor", "--oom-ram-threshold", str(RAM_THRESHOLD))  # fmt: skip
    env = {
        "FLEXSERV_POD_UID": uid,
        "LD_LIBRARY_PATH": str(build_library(folder)),
        "FAKE_NVML_DIR": str(machine),
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    with RunningServer(*flags, env=env) as server:
        world.set_pod_status("backend-0", phase="Running", podIP=ADDRESS, podIPs=[{"ip": ADDRESS}])
        yield server


def declare(world: World, models: Path) -> None:
    """One model that is loaded, two for requests to load, and one that does not exist."""
    world.apply("chat", model=str(models / "tiny-random-llama"), servedName="chat")
    world.reaches("chat", "Loaded", timeout=60)
    world.apply("rare", model=str(models / "tiny-random-gpt2"), servedName="rare", residency="OnDemand")
    slow = str(models / "SmolLM2-135M-Instruct")
    world.apply("slow", model=slow, servedName="slow", residency="OnDemand")
    world.apply("missing", model="/no/such/folder", servedName="missing")
    for name, phase in (("rare", "Standby"), ("slow", "Standby"), ("missing", "Failed")):
        world.reaches(name, phase, timeout=60)


def chat(server: RunningServer, model: str = "chat", **changes: Any) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": TOKENS}
    return server.client.post(CHAT, json={**body, **changes})


def completion(server: RunningServer, model: str) -> dict[str, Any]:
    body = {"model": model, "prompt": "Hello", "max_tokens": TOKENS}
    answer = server.client.post(COMPLETION, json=body)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def warm_up(server: RunningServer, prometheus: Prometheus) -> None:
    """One of each, for a counter that appears with its first value cannot be seen to have grown to it."""
    assert chat(server).status_code == 200
    assert chat(server, temperature="hot").status_code == 400
    completion(server, "rare")
    until_scraped(prometheus, server)


@dataclass(frozen=True)
class Asked:
    """What the answers said, and the seconds that the slowest chat took."""

    slowest: float
    chat_prompts: int
    chat_generated: int
    rare_prompt: int
    rare_generated: int


def ask(server: RunningServer) -> Asked:
    """Chats, refusals, two evictions of a model with a cold request in between, and a stream that is left."""
    answers = [chat(server) for _ in range(CHATS)]
    assert [answer.status_code for answer in answers] == [200] * CHATS
    refused = [chat(server, temperature="hot").status_code for _ in range(REFUSED)]
    assert refused == [400] * REFUSED
    unload = {"model_id": "rare"}
    server.client.post("/v1/flexserv/models/unload", json=unload).raise_for_status()
    cold = completion(server, "rare")["usage"]
    server.client.post("/v1/flexserv/models/unload", json=unload).raise_for_status()
    with server.client.stream("POST", COMPLETION, json=ENDLESS) as stream:
        next(stream.iter_lines())
    eventually(lambda: sample(server, "flexserv_streams_aborted_total") == 1, 60)
    usages = [answer.json()["usage"] for answer in answers]
    return Asked(
        max(answer.elapsed.total_seconds() for answer in answers),
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["completion_tokens"] for usage in usages),
        cold["prompt_tokens"],
        cold["completion_tokens"],
    )


@contextmanager
def a_busy_model(server: RunningServer) -> Iterator[None]:
    """A request that runs, and another one that waits for the model."""
    done, begun = threading.Event(), threading.Event()

    def read() -> None:
        with (
            httpx.Client(base_url=server.base_url, timeout=120) as client,
            client.stream("POST", COMPLETION, json=ENDLESS) as stream,
        ):
            for _ in stream.iter_lines():
                begun.set()
                if done.is_set():
                    return

    def wait() -> None:
        with httpx.Client(base_url=server.base_url, timeout=120) as client:
            client.post(COMPLETION, json={**ENDLESS, "stream": False, "max_tokens": 1})

    threads = [threading.Thread(target=read), threading.Thread(target=wait)]
    threads[0].start()
    try:
        assert begun.wait(90)
        threads[1].start()
        eventually(lambda: sample(server, "flexserv_requests_waiting") == 1, 60)
        yield
    finally:
        done.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(120)


def counted(text: str, name: str) -> dict[str, float]:
    """The samples of one metric, by the value of its only label ("" where it has none)."""
    found = re.findall(rf'^{name}(?:{{\w+="([^"]*)"}})? (\S+)$', text, re.MULTILINE)
    return {label: float(value) for label, value in found}


def sample(server: RunningServer, name: str) -> float:
    """A metric without labels."""
    return counted(server.client.get("/metrics").text, name)[""]


def fewest_samples(prometheus: Prometheus) -> float:
    """How often the youngest of the counters that have to grow was scraped."""
    series = f'flexserv_request_duration_seconds_count{{code!="499",model!="slow"}}[{WINDOW_S}s]'
    return min(prometheus.query(f"count_over_time({series})").values(), default=0)


def until_scraped(prometheus: Prometheus, server: RunningServer) -> None:
    """Wait until Prometheus has seen all requests and evictions that the backend counts now."""
    names = (
        "flexserv_request_duration_seconds_count",
        "flexserv_model_evictions_total",
        "flexserv_requests_waiting",
    )

    def total(name: str) -> float:
        lines = server.client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}[{{ ]", line))

    def seen(name: str) -> float:
        return sum(prometheus.query(f"sum({name})").values())

    eventually(lambda: [seen(name) for name in names] == [total(name) for name in names], 60)


def judge(prometheus: Prometheus, panels: Mapping[str, list[Check]]) -> bool:
    """Ask every query of the dashboard, and compare; all that is wrong is told together."""
    variables = {"__rate_interval": f"{WINDOW_S}s", "namespace": ".*", "job": "flexserv"}
    dashboard = Dashboard(DASHBOARD, variables)
    assert len(dashboard.lookups()) == 2 and all(map(prometheus.query, dashboard.lookups()))
    queries = dashboard.queries()
    assert {title: len(asked) for title, asked in queries.items()} == {
        title: len(checks) for title, checks in panels.items()
    }
    wrong = []
    for title, checks in panels.items():
        for query, check in zip(queries[title], checks, strict=True):
            found = labeled(prometheus.query(query))
            try:
                check(found)
            except AssertionError as error:
                wrong.append(f"{title}\n  {query}\n  {found}\n  {error}")
    assert not wrong, "\n".join(wrong)
    return True


@dataclass(frozen=True)
class Told:
    """What the panels have to say, from what the test did and from the programs' own counters."""

    server: RunningServer
    operator: Operator
    address: str
    asked: Asked

    def panels(self) -> dict[str, list[Check]]:
        """A check for each query, by the panel's title."""
        return {
            **self._overview(),
            **self._machine(),
            **self._models(),
            **self._requests(),
            **self._operator(),
        }

    def _overview(self) -> dict[str, list[Check]]:
        return {
            "Backends ready": [exactly({(): 1})],
            "Models in memory": [exactly({(): 2})],
            "Requests in flight": [exactly({(): 2})],
            "Requests waiting": [exactly({(): 1})],
            "Errors (5xx)": [exactly({(): 0})],
            "Pinned models not Ready": [exactly({(): 1})],
        }

    def _machine(self) -> dict[str, list[Check]]:
        def per_gpu(first: float, second: float) -> Check:
            keys = [(str(n), self.address, "flexserv", str(a100(n)["uuid"])) for n in (0, 1)]
            return exactly(dict(zip(keys, (first, second), strict=True)))

        memory, backend = psutil.virtual_memory(), (self.address, "flexserv")
        folder = Path(HF_HUB_CACHE).absolute()
        disk = shutil.disk_usage(next(path for path in (folder, *folder.parents) if path.is_dir()))
        return {
            "GPU memory and threshold": [per_gpu(30 / 40, 10 / 40), exactly({(): 0.9})],
            "GPU memory": [per_gpu(30 * GIB, 10 * GIB)],
            "GPU utilization": [per_gpu(0.87, 0.87)],
            "GPU temperature": [per_gpu(68, 68)],
            "GPU power": [per_gpu(312.1, 312.1)],
            "Memory and threshold": [
                exactly({(*backend, "node"): 1 - memory.available / memory.total}, within=0.15),
                exactly({(): RAM_THRESHOLD / 100}),
            ],
            "Memory pressure": [
                exactly({(origin, gpu): 0 for origin in ("own", "external") for gpu in ("ram", "vram")}),
                exactly({"ram": 0, "vram": 0}),
            ],
            "CPU": [between(0.01, 1, self.address)],
            "Model cache": [exactly({backend: disk.used / (disk.used + disk.free)}, within=0.05)],
            "Event loop lag": [between(0, 30, backend)],
        }

    def _models(self) -> dict[str, list[Check]]:
        loads = counted(self._own(), "flexserv_model_loads_total")
        assert loads["loaded"] == 4 and loads["failed"] >= 1
        inventory = self.server.client.get("/v1/flexserv/models/loaded").json()
        return {
            "Models over time": [exactly({"chat": 1, "slow": 1})],
            "Memory by model": [exactly({m["served_name"]: m["bytes"] for m in inventory["models"]})],
            "Evictions by reason": [grew({"manual": 2})],
            "Loads by outcome": [grew(loads)],
            "Load time (p90)": [between(0.001, 120)],
        }

    def _requests(self) -> dict[str, list[Check]]:
        asked = self.asked
        answered = between(0.0001, bucket_of(REQUEST_BUCKETS, asked.slowest), CHAT)
        begun = between(0.0001, bucket_of(FIRST_TOKEN_BUCKETS, asked.slowest), "chat")
        codes = {("200", CHAT): CHATS, ("400", CHAT): REFUSED, ("200", COMPLETION): 1}
        generated = {"chat": asked.chat_generated, "rare": asked.rare_generated}
        prompts = {"chat": asked.chat_prompts, "rare": asked.rare_prompt}
        return {
            "Requests": [grew(codes, seconds=WINDOW_S)],
            "Request duration (p50, p95)": [answered, answered],
            "Time to first token (p50, p95)": [begun, begun],
            "Generated tokens": [grew(generated, seconds=WINDOW_S)],
            "Prompt tokens": [grew(prompts, seconds=WINDOW_S)],
            "Cold requests": [grew({"rare": 1})],
            "Queue": [exactly({self.address: 1}), exactly({self.address: 2})],
            "Queue wait (p95)": [between(0, 60)],
            "Aborted streams": [grew({self.address: 1})],
        }

    def _operator(self) -> dict[str, list[Check]]:
        text = self.operator.get(self.operator.metrics_port, "/metrics").text
        return {
            "FlexServModels by phase": [
                exactly({"Loaded": 2, "Standby": 1, "Failed": 1, "Pending": 0, "Loading": 0, "Degraded": 0})
            ],
            "Orders by outcome": [
                grew(counted(text, "flexserv_operator_loads_total")),
                grew(counted(text, "flexserv_operator_unloads_total")),
            ],
            "Failed looks at pods": [grew(counted(text, "flexserv_operator_poll_errors_total"))],
            "Models in quarantine": [exactly({(): 0})],
            "Cycle duration (p95)": [between(0.0001, 30)],
            "Age of the last cycle": [between(-5, 60)],
        }

    def _own(self) -> str:
        return self.server.client.get("/metrics").text
