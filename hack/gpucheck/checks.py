"""The checks. Each starts the backend that it needs, and gives one row or several of the table."""

import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpucheck.backend import CALL_SECONDS, Answer, Backend
from gpucheck.probe import Probe

GIB = 1 << 30
TOLERANCE_BYTES = GIB // 2
"""Contexts, caches and neighbours come and go between two readings."""
TOKENS, CLIENTS = 64, 8

Status = Literal["ok", "failed", "unavailable"]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    check: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Bench:
    """What every check is given: the backend's Python, the folder of made models, where models go."""

    python: Path
    models: Path
    device: str
    probe: Probe

    def backend(self, *flags: str) -> Backend:
        """Not started yet."""
        return Backend(self.python, "--device", self.device, *flags)

    @property
    def medium(self) -> Path:
        return self.models / "medium"

    @property
    def has_gpu(self) -> bool:
        return self.device != "cpu"


Check = Callable[[Bench], Iterator[Row]]


def row(check: str, good: bool, detail: str) -> Row:
    """ok or failed."""
    return Row(check, "ok" if good else "failed", detail)


def memory_figures(bench: Bench) -> Iterator[Row]:
    """What the backend says is free is what the more careful of NVML and CUDA says; a load takes its size, an
    unload gives it back.
    """
    with bench.backend() as backend:
        facts = bench.probe.facts()
        gpus = backend.get("/v1/flexserv/resources").body["gpu"]
        if not gpus:
            yield row("memory figures", False, "the backend sees no GPU")
            return
        careful = min(facts["cuda_free"], facts["nvml_free"])
        free = gpus[0]["free_gb"] * GIB
        nvml, cuda = facts["nvml_free"] / GIB, facts["cuda_free"] / GIB
        shown = f"free: {free / GIB:.1f} GiB, NVML {nvml:.1f}, CUDA {cuda:.1f}"
        yield row("memory figures", abs(free - careful) < TOLERANCE_BYTES, shown)
        loaded = backend.load(bench.medium)
        if loaded.status != 200:
            yield row("memory of a model", False, str(loaded))
            return
        chat = backend.chat(bench.medium, TOKENS)
        used = bench.probe.facts()["nvml_used"]
        (model,) = backend.inventory()["models"]
        backend.post("/v1/flexserv/models/unload", model_id=str(bench.medium))
        after = bench.probe.facts()["nvml_used"]
        taken, given = used - facts["nvml_used"], used - after
        shown = (
            f"its size {model['bytes'] / GIB:.2f} GiB, taken {taken / GIB:.2f}, given back {given / GIB:.2f}"
        )
        good = chat.status == 200 and taken > 0.9 * model["bytes"] and given > 0.9 * model["bytes"]
        yield row("memory of a model", good, shown)


def ways_to_load(bench: Bench) -> Iterator[Row]:
    """Attention kernels and quantization: each loads, answers, and takes the memory that it should."""
    plain_bytes = None
    with bench.backend("--max-loaded-models", "1") as backend:
        for setting, value in (
            ("attn_implementation", "eager"),
            ("attn_implementation", "sdpa"),
            ("attn_implementation", "flash_attention_2"),
            ("quantization", "bnb-8bit"),
            ("quantization", "bnb-4bit"),
        ):
            name = f"{setting} {value}"
            loaded = backend.load(bench.medium, **{setting: value}, **_but(setting))
            if loaded.code == "unsupported_model":
                said = loaded.body["error"]["message"].removeprefix(f"{bench.medium}: ")
                yield Row(name, "unavailable", said.partition(";")[0])
                continue
            began = time.monotonic()
            chat = backend.chat(bench.medium, TOKENS) if loaded.status == 200 else loaded
            if chat.status != 200:
                yield row(name, False, str(chat))
                continue
            rate = chat.tokens / (time.monotonic() - began)
            size = backend.inventory()["models"][0]["bytes"]
            plain_bytes = plain_bytes or size
            small = {"bnb-8bit": 0.75, "bnb-4bit": 0.5}.get(value, 1.01)
            good = size <= small * plain_bytes
            yield row(name, good, f"{rate:.0f} tokens/s, {size / GIB:.2f} GiB")


def _but(setting: str) -> dict[str, str | None]:
    """The other setting back at its default: what a load leaves out stays as it was."""
    return {"quantization": None} if setting == "attn_implementation" else {"attn_implementation": "sdpa"}


def compiled(bench: Bench) -> Iterator[Row]:
    """--compile: the first answers pay for CUDA graphs, the later ones are faster than without."""
    rates = []
    for flags in ((), ("--compile",)):
        with bench.backend(*flags) as backend:
            last, seconds = _timed_chats(backend, bench, 3)
            if last.status != 200:
                yield row("--compile", False, str(last))
                return
            rates.append(last.tokens / seconds[-1])
            first = seconds[0]
    plain, fast = rates
    shown = f"{plain:.0f} tokens/s plain, {fast:.0f} compiled; its first answer took {first:.1f} s"
    yield row("--compile", fast > plain or not bench.has_gpu, shown)


def _timed_chats(backend: Backend, bench: Bench, times: int) -> tuple[Answer, list[float]]:
    answer = backend.load(bench.medium)
    seconds: list[float] = []
    while answer.status == 200 and len(seconds) < times:
        began = time.monotonic()
        answer = backend.chat(bench.medium, TOKENS)
        seconds.append(time.monotonic() - began)
    return answer, seconds


def batching(bench: Bench) -> Iterator[Row]:
    """--continuous-batching: several clients get more than one alone, and the pool goes with the model."""
    name = "--continuous-batching"
    small = [] if bench.has_gpu else ["--cb-num-blocks", "64", "--cb-max-batch-tokens", "256"]
    before = bench.probe.facts().get("nvml_used", 0)
    with bench.backend(name, *small) as backend:
        alone, seconds = _timed_chats(backend, bench, 2)
        if alone.status != 200:
            yield row(name, False, str(alone))
            return
        began = time.monotonic()
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(lambda _: backend.chat(bench.medium, TOKENS), range(CLIENTS)))
        seconds_together = time.monotonic() - began
        wrong = [answer for answer in answers if answer.status != 200]
        one = alone.tokens / seconds[-1]
        together = sum(answer.tokens for answer in answers if answer.status == 200) / seconds_together
        shown = str(wrong[0]) if wrong else f"{one:.0f} tokens/s alone, {together:.0f} with {CLIENTS} clients"
        yield row(name, not wrong and together > one, shown)
        if bench.has_gpu:
            backend.post("/v1/flexserv/models/unload", model_id=str(bench.medium))
            left = bench.probe.facts()["nvml_used"] - before
            # What stays is the process's CUDA context and the libraries' workspaces.
            yield row("the pool goes with its model", left < 2 * GIB, f"{left / GIB:.2f} GiB stay")


def eviction(bench: Bench) -> Iterator[Row]:
    """A neighbour takes memory until the threshold is crossed: an idle model goes, and why is said."""
    name, facts = "eviction by --oom-monitor", bench.probe.facts()
    model_bytes = sum(file.stat().st_size for file in bench.medium.glob("*.safetensors"))
    limit = facts["nvml_used"] + 3 * model_bytes  # room for a context, the model, and half a model
    share = 100 * limit / facts["total"]
    flags = ["--oom-monitor", "--oom-vram-threshold", f"{share:.2f}", "--oom-check-interval", "1"]
    with bench.backend(*flags) as backend:
        loaded = backend.load(bench.medium)
        if loaded.status != 200:
            yield row(name, False, str(loaded))
            return
        excess = limit - bench.probe.facts()["nvml_used"] + model_bytes // 4
        with bench.probe.held(excess):
            deadline = time.monotonic() + CALL_SECONDS / 3
            while not (gone := backend.inventory()["last_evictions"]) and time.monotonic() < deadline:
                time.sleep(0.5)
        reasons = [one["reason"] for one in gone]
        yield row(
            name, reasons == ["memory"], f"threshold {share:.2f} %, evicted for: {reasons or 'nothing'}"
        )


def sticky_error(bench: Bench) -> Iterator[Row]:
    """A fault of the device that stays: the request fails, and liveness says that only a restart helps."""
    name, model = "sticky CUDA error", bench.models / "broken"
    with bench.backend() as backend:
        chat = backend.chat(model, 4)
        deadline = time.monotonic() + CALL_SECONDS / 3
        while (live := backend.get("/health")).status == 200 and time.monotonic() < deadline:
            time.sleep(0.5)
        ready = backend.get("/v1/flexserv/health")
        good = (chat.status, live.status, ready.status) == (500, 500, 503) or (
            chat.status == 503 and (live.status, ready.status) == (500, 503)
        )
        shown = (
            f"chat {chat.status}, /health {live.status}, readiness {ready.status} {ready.body.get('status')}"
        )
        yield row(name, good, shown)


ON_ANY_DEVICE: dict[str, Check] = {"load": ways_to_load, "compile": compiled, "batching": batching}
ON_GPU_ONLY: dict[str, Check] = {"memory": memory_figures, "eviction": eviction, "sticky": sticky_error}
ALL = {**ON_GPU_ONLY, **ON_ANY_DEVICE}


def outcome_of(name: str, bench: Bench) -> Iterator[Row]:
    """The rows of a check; whatever goes wrong with it is a row too."""
    if name in ON_GPU_ONLY and not bench.has_gpu:
        yield Row(name, "unavailable", "needs a GPU")
        return
    try:
        yield from ALL[name](bench)
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        yield row(name, False, f"{type(error).__name__}: {error}")
