"""The metrics of a backend whose machine and models a test makes up, and what a scrape of them says."""

from pathlib import Path
from typing import Any

from hf_transformers_backend.activity import ActivityTracker
from hf_transformers_backend.metrics import Metrics, build_metrics
from hf_transformers_backend.residency.views import ResidencySnapshot
from hf_transformers_backend.resource_metrics import GpuMemoryInfo, Machine
from hf_transformers_backend.settings import Settings
from prometheus_client.parser import text_string_to_metric_families

from tests.support.residents import snapshot

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


HEALTHY = GpuMemoryInfo(0, 30 * GIB, 10 * GIB, 40 * GIB, 87.0, 68.0, 312.1, uuid="GPU-a", name="A100")
