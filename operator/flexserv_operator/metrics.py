"""The operator's Prometheus metrics, in a registry of their own."""

import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

PHASES = ("Pending", "Loading", "Loaded", "Standby", "Degraded", "Failed")
LOAD_OUTCOMES = ("submitted", "already_loaded", "refused", "error")
UNLOAD_OUTCOMES = ("done", "refused", "error")
POLL_ERRORS = ("BackendUnreachable", "BackendIncredible", "BackendRefused", "BackendError")


@dataclass(frozen=True)
class ShownModel:
    """One FlexServModel as metrics show it; `ready` is its condition Ready."""

    name: str
    pinned: bool
    phase: str
    ready: bool


class Metrics:
    """Names as documented; counters with a closed set of labels start at 0."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a `_created` beside every counter says nothing here
        self.registry = CollectorRegistry()
        self.cycle_duration = Histogram(
            "flexserv_operator_cycle_duration_seconds",
            "Duration of one reconcile cycle.",
            registry=self.registry,
        )
        self.last_cycle = Gauge(
            "flexserv_operator_last_cycle_timestamp_seconds",
            "End of the last whole cycle; before the first one, the operator's start.",
            registry=self.registry,
        )
        self.last_cycle.set(time.time())
        self._models = _Models()
        self.registry.register(self._models)
        self.loads = Counter(
            "flexserv_operator_loads_total",
            "Loads asked of backend pods.",
            ["outcome"],
            registry=self.registry,
        )
        self.unloads = Counter(
            "flexserv_operator_unloads_total",
            "Unloads asked of backend pods.",
            ["outcome"],
            registry=self.registry,
        )
        self.poll_errors = Counter(
            "flexserv_operator_poll_errors_total",
            "Looks at a pod that failed.",
            ["reason"],
            registry=self.registry,
        )
        self.quarantined = Gauge(
            "flexserv_operator_quarantined_models", "Models in quarantine.", registry=self.registry
        )
        Info("flexserv_operator_build", "The operator's version.", registry=self.registry).info(
            {"version": _own_version()}
        )
        ProcessCollector(registry=self.registry)
        for metric, labels in (
            (self.loads, LOAD_OUTCOMES),
            (self.unloads, UNLOAD_OUTCOMES),
            (self.poll_errors, POLL_ERRORS),
        ):
            for label in labels:
                metric.labels(label)

    def show_models(self, models: Iterable[ShownModel]) -> None:
        """These are the FlexServModels now, and no others."""
        self._models.shown = tuple(models)


class _Models(Collector):
    """FlexServModels one by one and by phase; one that is gone is no series."""

    def __init__(self) -> None:
        self.shown: tuple[ShownModel, ...] = ()

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        shown = self.shown
        by_phase = GaugeMetricFamily("flexserv_operator_models", "FlexServModels by phase.", labels=["phase"])
        tally = Tally(model.phase for model in shown)
        for phase in PHASES:
            by_phase.add_metric([phase], tally[phase])
        ready = GaugeMetricFamily(
            "flexserv_operator_model_ready",
            "1 for a FlexServModel whose condition Ready is True, else 0.",
            labels=["flexservmodel", "residency"],
        )
        for model in shown:
            ready.add_metric([model.name, "Pinned" if model.pinned else "OnDemand"], float(model.ready))
        yield from (by_phase, ready)


def _own_version() -> str:
    try:
        return version("flexserv")
    except PackageNotFoundError:
        return "unknown"
