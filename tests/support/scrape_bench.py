"""How long a scrape of a real backend takes with ten models and eight stand-in GPUs (hack/bench-scrape)."""

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from tests.support.fake_nvml import a100, build_library, write_machine
from tests.support.server import RunningServer

MODELS, GPUS = 10, 8
P99_MS = 20.0
SAMPLES = Path(__file__).parents[2] / ".build" / "benches" / "scrape.json"
CACHE = Path(os.environ.get("FLEXSERV_CACHE", Path.home() / ".cache" / "flexserv"))


def main(scrapes: int) -> int:
    """Measure, write the samples, and say whether the bound holds; the exit status."""
    model = Path(os.environ.get("FLEXSERV_TEST_MODELS", CACHE / "models")) / "tiny-random-llama"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        machine = write_machine(folder / "machine", {str(number): a100(number) for number in range(GPUS)})
        environment = {
            "LD_LIBRARY_PATH": str(build_library(folder)),
            "FAKE_NVML_DIR": str(machine),
            "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(GPUS))),
        }
        with RunningServer("--device", "cpu", "--oom-monitor", env=environment) as server:
            for number in range(MODELS):
                (folder / f"model-{number}").symlink_to(model)
                load = {"model_id": str(folder / f"model-{number}"), "wait": True}
                server.client.post("/v1/flexserv/models/load", json=load).raise_for_status()
            before = _cpu_seconds(server)
            milliseconds = [_scrape(server) for _ in range(scrapes)]
            text = server.client.get("/metrics").text
            cpu_milliseconds = 1000 * (_cpu_seconds(server) - before) / scrapes
    seen = (text.count("\nflexserv_model_loaded{"), text.count("\nflexserv_gpu_memory_used_bytes{"))
    if seen != (MODELS, GPUS):
        print(f"{seen[0]} models and {seen[1]} GPUs in a scrape, wanted {MODELS} and {GPUS}")
        return 1
    print(f"{cpu_milliseconds:.1f} ms of CPU for a scrape, HTTP included")
    return _judge(milliseconds, len(text))


def _scrape(server: RunningServer) -> float:
    started = time.perf_counter()
    server.client.get("/metrics").raise_for_status()
    return 1000 * (time.perf_counter() - started)


def _cpu_seconds(server: RunningServer) -> float:
    text = server.client.get("/metrics").text
    return float(re.search(r"^process_cpu_seconds_total (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]


def _judge(milliseconds: list[float], size: int) -> int:
    SAMPLES.parent.mkdir(parents=True, exist_ok=True)
    SAMPLES.write_text(json.dumps(milliseconds))
    ordered = sorted(milliseconds)
    p50, p99 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"{len(ordered)} scrapes of {size} bytes, {MODELS} models, {GPUS} GPUs (samples: {SAMPLES})")
    print(f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {ordered[-1]:.1f} ms; bound: p99 {P99_MS:g} ms")
    return 0 if p99 <= P99_MS else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
