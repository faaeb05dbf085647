"""The operator's Prometheus metrics, in a registry of their own."""

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

PHASES = ("Pending", "Loading", "Loaded", "Standby", "Degraded", "Failed")
LOAD_OUTCOMES = ("submitted", "already_loaded", "refused", "error")
UNLOAD_OUTCOMES = ("done", "refused", "error")
POLL_ERRORS = ("BackendUnreachable", "BackendIncredible", "BackendRefused", "BackendError")


class Metrics:
    """Names as documented; counters with a closed set of labels start at 0."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.cycle_duration = Histogram(
            "flexserv_operator_cycle_duration_seconds",
            "Duration of one reconcile cycle.",
            registry=self.registry,
        )
        self.last_cycle = Gauge(
            "flexserv_operator_last_cycle_timestamp_seconds",
            "End of the last whole cycle.",
            registry=self.registry,
        )
        self._models = Gauge(
            "flexserv_operator_models", "FlexServModels by phase.", ["phase"], registry=self.registry
        )
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
        for metric, labels in (
            (self.loads, LOAD_OUTCOMES),
            (self.unloads, UNLOAD_OUTCOMES),
            (self.poll_errors, POLL_ERRORS),
        ):
            for label in labels:
                metric.labels(label)
        self.show_phases(())

    def show_phases(self, phases: Iterable[str]) -> None:
        """Set the number of models in each phase."""
        tally = Tally(phases)
        for phase in PHASES:
            self._models.labels(phase).set(tally[phase])
