"""What Prometheus sees: collectors that read the sources of truth at scrape time, and request instruments.

Base units, ratios from 0 to 1. A gauge without a value is absent, never 0; counters with closed label sets
start at 0. Every app has its own registry. A scrape waits for no CPU window and belongs in a thread.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, get_args

from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from hf_transformers_backend import __version__
from hf_transformers_backend.activity import ActivityTracker
from hf_transformers_backend.event_loop_lag import EventLoopLag
from hf_transformers_backend.eviction import Origin, Pressure, Resource
from hf_transformers_backend.request_metrics import RequestMetrics
from hf_transformers_backend.residency.views import LOAD_BOUNDS, EvictionReason, ResidencySnapshot
from hf_transformers_backend.resource_metrics import Machine, machine
from hf_transformers_backend.resources_collector import ResourcesCollector
from hf_transformers_backend.settings import Settings

__all__ = ["CONTENT_TYPE", "Metrics", "build_metrics"]

LOAD_OUTCOMES = ("loaded", "failed", "aborted")


class Residency(Protocol):
    """Where the model series come from."""

    def snapshot(self) -> ResidencySnapshot: ...


class Metrics:
    """One app's registry, its request instruments and its loop watch."""

    def __init__(
        self, registry: CollectorRegistry, requests: RequestMetrics, event_loop_lag: EventLoopLag
    ) -> None:
        self.registry = registry
        self.requests = requests
        self.event_loop_lag = event_loop_lag

    def render(self) -> bytes:
        """The text of a scrape, of type CONTENT_TYPE. Reads the machine: call it in a thread."""
        return generate_latest(self.registry)


def build_metrics(
    residency: Residency,
    activity: ActivityTracker,
    settings: Settings,
    readiness: Callable[[], bool],
    *,
    pressures: Callable[[], Sequence[Pressure]] | None = None,
    machine: Machine = machine,
) -> Metrics:
    """Everything under one new registry. Without `pressures` (no monitor runs) their series are absent."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a `_created` series beside every counter says nothing here
    registry = CollectorRegistry()
    lag = EventLoopLag()
    registry.register(ModelsCollector(residency))
    registry.register(ServerCollector(activity, settings, readiness, lag, pressures))
    registry.register(
        ResourcesCollector(
            machine, cache_limit=settings.cache_limit_bytes, per_core=settings.per_core_cpu_metrics
        )
    )
    ProcessCollector(registry=registry)

    def known_models() -> frozenset[str]:
        now = residency.snapshot()
        return now.declared_labels | {model.label for model in now.models}

    return Metrics(registry, RequestMetrics(registry, known_models), lag)


class ModelsCollector(Collector):
    """What is resident, how loads went, and why models left."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        now = self._residency.snapshot()
        labels = ["model", "revision", "kind"]
        loaded = GaugeMetricFamily("flexserv_model_loaded", "1 for a model that is in memory.", labels=labels)
        last_used = GaugeMetricFamily(
            "flexserv_model_last_used_timestamp_seconds",
            "When a resident model last began or ended a request.",
            labels=labels,
        )
        active = GaugeMetricFamily(
            "flexserv_model_active_requests", "Requests that hold a resident model.", labels=labels
        )
        size = GaugeMetricFamily(
            "flexserv_model_memory_bytes", "Bytes of a resident model's weights.", labels=labels
        )
        for values, model in {
            (model.label, model.identity.revision or "", model.identity.kind): model for model in now.models
        }.items():
            loaded.add_metric(values, 1)
            last_used.add_metric(values, model.last_used_at)
            active.add_metric(values, model.active_requests)
            size.add_metric(values, model.bytes)
        yield from (loaded, last_used, active, size)
        yield _closed_counter(
            "flexserv_model_loads",
            "Loads that ended, by outcome.",
            "outcome",
            LOAD_OUTCOMES,
            now.loads.items(),
        )
        yield _closed_counter(
            "flexserv_model_evictions",
            "Models that left memory, by reason.",
            "reason",
            get_args(EvictionReason),
            now.evictions.items(),
        )
        durations = HistogramMetricFamily("flexserv_model_load_duration_seconds", "Time that a load took.")
        bounds = (*map(str, LOAD_BOUNDS), "+Inf")
        durations.add_metric(
            [], list(zip(bounds, now.load_times.counts, strict=True)), now.load_times.total_seconds
        )
        yield durations


class ServerCollector(Collector):
    """The process: ready or not, in flight, pressure, thresholds, versions, the loop."""

    def __init__(
        self,
        activity: ActivityTracker,
        settings: Settings,
        readiness: Callable[[], bool],
        lag: EventLoopLag,
        pressures: Callable[[], Sequence[Pressure]] | None,
    ) -> None:
        self._activity = activity
        self._settings = settings
        self._readiness = readiness
        self._lag = lag
        self._pressures = pressures

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "flexserv_ready", "1 if readiness answers 200.", value=float(self._readiness())
        )
        in_flight = GaugeMetricFamily(
            "flexserv_requests_in_flight",
            "Inference requests whose answer is not complete.",
            labels=["route"],
        )
        for route, count in self._activity.by_route().items():
            in_flight.add_metric([route], count)
        yield in_flight
        thresholds = GaugeMetricFamily(
            "flexserv_oom_threshold_ratio", "Share of a memory that counts as full.", labels=["resource"]
        )
        thresholds.add_metric(["ram"], self._settings.oom_ram_threshold / 100.0)
        thresholds.add_metric(["vram"], self._settings.oom_vram_threshold / 100.0)
        yield thresholds
        if self._pressures is not None:
            yield from _pressure_families(self._pressures())
        if (late := self._lag.seconds()) is not None:
            yield GaugeMetricFamily(
                "flexserv_event_loop_lag_seconds",
                "Worst lateness of the event loop in the last half minute.",
                value=late,
            )
        build = GaugeMetricFamily("flexserv_build_info", "Versions, as labels.", labels=list(_VERSIONS))
        build.add_metric(list(_VERSIONS.values()), 1)
        yield build


def _pressure_families(pressures: Sequence[Pressure]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "flexserv_memory_pressure",
        "1 while a memory is at its threshold; origin external means that it is not ours to free.",
        labels=["resource", "origin"],
    )
    standing = {(pressure.resource, pressure.origin) for pressure in pressures}
    for resource in get_args(Resource):
        for origin in get_args(Origin):
            family.add_metric([resource, origin], float((resource, origin) in standing))
    yield family
    exhausted = GaugeMetricFamily(
        "flexserv_memory_exhausted",
        "1 while a memory is at its threshold, nothing is left to evict, and new work is refused.",
        labels=["resource"],
    )
    refusing = {pressure.resource for pressure in pressures if pressure.refuses_work}
    for resource in get_args(Resource):
        exhausted.add_metric([resource], float(resource in refusing))
    yield exhausted


def _closed_counter(
    name: str, text: str, label: str, values: Sequence[str], counts: Iterable[tuple[str, int]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in (dict.fromkeys(values, 0) | dict(counts)).items():
        family.add_metric([value], count)
    return family


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"


_VERSIONS = {
    "version": __version__,
    "transformers": _version("transformers"),
    "torch": _version("torch"),
    "python": platform.python_version(),
}
