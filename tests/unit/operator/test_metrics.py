"""What a scrape of the operator says."""

import subprocess

from flexserv_operator.metrics import PHASES, Metrics, ShownModel
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.chart import tool

SERIES = {
    "cycle_duration_seconds_bucket",
    "last_cycle_timestamp_seconds",
    "models",
    "model_ready",
    "loads_total",
    "unloads_total",
    "poll_errors_total",
    "quarantined_models",
    "build_info",
}


def scrape(metrics: Metrics) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return samples


def everything() -> Metrics:
    metrics = Metrics()
    metrics.cycle_duration.observe(0.1)
    metrics.show_models(
        [ShownModel("chat", True, "Loaded", True), ShownModel("rare", False, "Standby", True)]
    )
    return metrics


def test_every_promised_series_is_there_and_none_clashes_with_a_targets_labels() -> None:
    found = scrape(everything())
    assert {name for name in SERIES if f"flexserv_operator_{name}" not in found} == set()
    labels = {label for series in found.values() for sample in series for label, _ in sample}
    assert not labels & {"pod", "namespace", "container", "instance", "job", "service", "endpoint"}


def test_counters_with_closed_labels_start_at_zero() -> None:
    found = scrape(Metrics())
    for name in ("loads_total", "unloads_total", "poll_errors_total"):
        values = found[f"flexserv_operator_{name}"]
        assert len(values) >= 3 and set(values.values()) == {0.0}
    assert found["flexserv_operator_models"] == {(("phase", phase),): 0.0 for phase in PHASES}


def test_a_flexservmodel_is_a_series_while_it_exists() -> None:
    metrics = everything()
    chat = (("flexservmodel", "chat"), ("residency", "Pinned"))
    rare = (("flexservmodel", "rare"), ("residency", "OnDemand"))
    assert scrape(metrics)["flexserv_operator_model_ready"] == {chat: 1.0, rare: 1.0}
    metrics.show_models([ShownModel("chat", True, "Degraded", False)])
    found = scrape(metrics)
    assert found["flexserv_operator_model_ready"] == {chat: 0.0}
    assert found["flexserv_operator_models"][(("phase", "Degraded"),)] == 1.0
    assert found["flexserv_operator_models"][(("phase", "Loaded"),)] == 0.0


def test_before_the_first_cycle_the_loop_is_as_old_as_the_operator() -> None:
    """Else the age of the last cycle would be half a century, and say so to who is on call."""
    (value,) = scrape(Metrics())["flexserv_operator_last_cycle_timestamp_seconds"].values()
    assert value > 1_700_000_000


def test_prometheus_own_linter_has_nothing_to_say() -> None:
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=generate_latest(everything().registry),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout.decode() + result.stderr.decode()
    assert result.stderr == b"" and result.stdout == b""
