"""Memory, CPU, GPUs and the cache's disk as series, measured at scrape time, and the collector's health."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from huggingface_hub.constants import HF_HUB_CACHE
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hf_transformers_backend.cache_disk import CacheDisk, DiskUsage
from hf_transformers_backend.gpu_families import gpu_families
from hf_transformers_backend.resource_metrics import GpuMemoryInfo, Machine, RamInfo
from hf_transformers_backend.sensor import Sensor

log = logging.getLogger(__name__)

SENSOR_SECONDS = 2.0
"""How long a scrape waits for the driver or the file system; Prometheus itself gives up after 10."""


class ResourcesCollector(Collector):
    """A source that fails, or does not answer, loses its series and clears `collect_success`; others stay.

    Without `per_core` there is one CPU series, `cpu="all"`. `cache_limit` is what the cache may take, in
    bytes; None means its whole file system.
    """

    def __init__(
        self,
        machine: Machine,
        cache: Path = Path(HF_HUB_CACHE),
        clock: Callable[[], float] = time.time,
        *,
        cache_limit: int | None = None,
        per_core: bool = True,
        patience: float = SENSOR_SECONDS,
    ) -> None:
        self._machine = machine
        self._clock = clock
        self._per_core = per_core
        self._gpus = Sensor("GPUs", machine.read_gpus, patience)
        self._disk = Sensor("the cache's disk", CacheDisk(cache, cache_limit).usage, patience)
        self._lock = threading.Lock()
        self._last_success: float | None = None
        self._was_healthy = True

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        started = time.perf_counter()
        families: list[Metric] = []
        failures: list[str] = []
        gpus, disk = self._gpus.begin(), self._disk.begin()
        reads: tuple[Callable[[], list[Metric]], ...] = (
            self._memory_series,
            self._cpu_series,
            lambda: self._gpu_series(self._gpus.wait(gpus), failures),
            lambda: _disk_series(self._disk.wait(disk)),
        )
        for read in reads:
            try:
                families += read()
            except (OSError, RuntimeError, ValueError) as error:  # the other series must come out
                failures.append(f"{type(error).__name__}: {error}")
        self._note(failures)
        yield from families
        prefix = "flexserv_resources_"
        yield GaugeMetricFamily(
            prefix + "collect_success",
            "1 if every source answered at this scrape.",
            value=float(not failures),
        )
        yield GaugeMetricFamily(
            prefix + "collect_duration_seconds",
            "Time that measuring took at this scrape.",
            value=time.perf_counter() - started,
        )
        if self._last_success is not None:
            yield GaugeMetricFamily(
                prefix + "last_success_timestamp_seconds",
                "When every source last answered.",
                value=self._last_success,
            )

    def _note(self, failures: Sequence[str]) -> None:
        """Remember, and log changes only: scrapes come every few seconds."""
        with self._lock:
            if not failures:
                self._last_success = self._clock()
            elif self._was_healthy:
                log.warning("Some resources cannot be measured: %s", "; ".join(failures))
            self._was_healthy = not failures

    def _memory_series(self) -> list[Metric]:
        ram = self._machine.read_ram()
        ratio = GaugeMetricFamily(
            "flexserv_memory_used_ratio",
            "Used share of the node's and the container's memory.",
            labels=["scope"],
        )
        ratio.add_metric(["node"], ram.used_bytes / ram.total_bytes)
        families: list[Metric] = [
            GaugeMetricFamily(
                "flexserv_memory_used_bytes", "The node's total less available.", value=ram.used_bytes
            ),
            GaugeMetricFamily(
                "flexserv_memory_available_bytes",
                "What the node can give without swapping.",
                value=ram.available_bytes,
            ),
            GaugeMetricFamily("flexserv_memory_total_bytes", "The node's memory.", value=ram.total_bytes),
            ratio,
        ]
        return families + _container_families(ram, ratio)

    def _cpu_series(self) -> list[Metric]:
        family = GaugeMetricFamily(
            "flexserv_cpu_utilization_ratio",
            "Busy share of a logical core since the scrape before.",
            labels=["cpu"],
        )
        cores = self._machine.cpu_sampler.recent()
        if self._per_core:
            for core in cores:
                family.add_metric([str(core.cpu_id)], core.used_percentage / 100.0)
        elif cores:
            family.add_metric(["all"], sum(core.used_percentage for core in cores) / 100.0 / len(cores))
        return [family]

    def _gpu_series(self, gpus: Sequence[GpuMemoryInfo], failures: list[str]) -> list[Metric]:
        failures += [f"GPU {gpu.gpu_id}: {gpu.error}" for gpu in gpus if gpu.error is not None]
        return gpu_families(gpus, self._machine.driver_version())


def _disk_series(usage: DiskUsage) -> list[Metric]:
    return [
        GaugeMetricFamily(
            "flexserv_cache_used_bytes",
            "Used by the hub's cache, or on its file system where it has no limit.",
            value=usage.used,
        ),
        GaugeMetricFamily(
            "flexserv_cache_free_bytes", "What the hub's cache may still take.", value=usage.free
        ),
    ]


def _container_families(ram: RamInfo, ratio: GaugeMetricFamily) -> list[Metric]:
    container = ram.container
    if container is None:
        return []
    ratio.add_metric(["container"], container.unreclaimable_bytes / container.limit_bytes)
    return [
        GaugeMetricFamily(
            "flexserv_container_memory_limit_bytes",
            "The cgroup limit that binds.",
            value=container.limit_bytes,
        ),
        GaugeMetricFamily(
            "flexserv_container_memory_working_set_bytes",
            "Usage less inactive file pages, as the kubelet counts.",
            value=container.working_set_bytes,
        ),
        GaugeMetricFamily(
            "flexserv_container_memory_unreclaimable_bytes",
            "What the kernel cannot take back: what decisions are made with.",
            value=container.unreclaimable_bytes,
        ),
    ]
