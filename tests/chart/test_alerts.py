"""Every alert fires when it should and not otherwise, by Prometheus' own rule tests, and has its runbook."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from flexserv_operator.metrics import Metrics
from prometheus_client import generate_latest

from tests.support.alert_cases import CASES, Case, Series
from tests.support.chart import CHART, ChartRefused, nested, render, tool
from tests.unit.backend.test_metrics import SERIES

RUNBOOK_URL = "https://wiki.example/RUNBOOK.md"
MONITORED = {
    "metrics": {
        "prometheusRule": {"enabled": True, "runbookUrl": RUNBOOK_URL},
        "serviceMonitor": {"enabled": True},
    }
}
RUNBOOK = (CHART / "RUNBOOK.md").read_text(encoding="utf-8")

PAGES = {"FlexServBackendDown", "FlexServOperatorGone"}


@cache
def rules() -> dict[str, dict[str, Any]]:
    """The alerts of a release with everything enabled, by name."""
    (rule,) = render(MONITORED).all("PrometheusRule")
    return {alert["alert"]: alert for group in rule["spec"]["groups"] for alert in group["rules"]}


def promtool(folder: Path, *arguments: str) -> None:
    result = subprocess.run(
        [tool("promtool"), *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where rules.yaml is."""
    folder = tmp_path_factory.mktemp("rules")
    groups = [{"name": "all", "rules": list(rules().values())}]
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    return folder


def rule_test(series: Series, *expected: dict[str, Any]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": list(expected),
    }


def expectation(case: Case) -> dict[str, Any]:
    rule = rules()[case.alert]
    alert = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {**rule["annotations"], "description": case.description},
    }
    return {"alertname": case.alert, "eval_time": case.at, "exp_alerts": [alert]}


def silence(case: Case) -> list[dict[str, Any]]:
    """The alert at every five minutes of the test."""
    return [
        {"alertname": case.alert, "eval_time": f"{minutes}m", "exp_alerts": []} for minutes in range(0, 76, 5)
    ]


def test_there_is_a_case_for_every_alert() -> None:
    assert {case.alert for case in CASES} == set(rules())


def test_every_alert_fires_and_says_what_it_should(folder: Path) -> None:
    tests = [rule_test(case.fires, expectation(case)) for case in CASES]
    (folder / "fires.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    promtool(folder, "check", "rules", "rules.yaml")
    promtool(folder, "test", "rules", "fires.yaml")


def test_no_alert_fires_where_it_should_not(folder: Path) -> None:
    assert {case.alert for case in CASES if case.quiet} == set(rules())
    tests = [rule_test(series, *silence(case)) for case in CASES for series in case.quiet]
    (folder / "quiet.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    promtool(folder, "test", "rules", "quiet.yaml")


def test_only_what_cannot_wait_is_a_page() -> None:
    severity = {name: rule["labels"]["severity"] for name, rule in rules().items()}
    assert {name for name, value in severity.items() if value == "critical"} == PAGES
    assert set(severity.values()) == {"critical", "warning"}


def test_every_alert_has_a_section_and_a_row_in_the_runbook_and_nothing_else_has() -> None:
    sections = re.findall(r"^## (FlexServ\w+)$", RUNBOOK, re.MULTILINE)
    rows = dict(re.findall(r"^\| \[(FlexServ\w+)\]\(#\w+\) \| (\w+) \|", RUNBOOK, re.MULTILINE))
    assert sorted(sections) == sorted(rules()) == sorted(rows)
    assert {name for name, level in rows.items() if level == "page"} == PAGES
    for name, rule in rules().items():
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOK_URL}#{name.lower()}"
    headings = re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE)
    assert set(re.findall(r"\(#(\w+)\)", RUNBOOK)) <= {heading.lower() for heading in headings}


def test_without_an_address_no_alert_links_a_runbook() -> None:
    metrics = {**MONITORED["metrics"], "prometheusRule": {"enabled": True}}
    (rule,) = render({"metrics": metrics}).all("PrometheusRule")
    for group in rule["spec"]["groups"]:
        for alert in group["rules"]:
            assert set(alert["annotations"]) == {"summary", "description"}, alert["alert"]


def test_every_metric_that_an_alert_asks_for_is_one_that_we_serve() -> None:
    served = {f"flexserv_{name}" for name in SERIES}
    served |= set(
        re.findall(r"^(flexserv_operator_\w+)", generate_latest(Metrics().registry).decode(), re.MULTILINE)
    )
    served |= {"flexserv_operator_model_ready", "up"}
    for name, rule in rules().items():
        asked = set(re.findall(r"\b(flexserv_\w+|up)\{", rule["expr"]))
        counts = {metric.removesuffix("_count") for metric in asked if metric.endswith("_count")}
        assert {m for m in asked if not m.endswith("_count")} <= served, name
        assert {f"{metric}_bucket" for metric in counts} <= served, name


@pytest.mark.parametrize(
    ("values", "backend", "operator"),
    [
        ({}, 'namespace="models",job="flexserv"', 'namespace="models",job="flexserv-operator"'),
        (
            {"serviceMonitor": {"enabled": False}, "podMonitor": {"enabled": True}},
            'namespace="models",job="models/flexserv-backend"',
            'namespace="models",job="models/flexserv-operator"',
        ),
        (
            {
                "serviceMonitor": {"enabled": False},
                "prometheusRule": {"enabled": True, "jobs": {"backend": "mine", "operator": "also-mine"}},
            },
            'job="mine"',
            'job="also-mine"',
        ),
    ],
)
def test_alerts_are_about_this_release_alone(values: dict[str, Any], backend: str, operator: str) -> None:
    (rule,) = render({"metrics": {**MONITORED["metrics"], **values}}).all("PrometheusRule")
    for group, selector in zip(rule["spec"]["groups"], (backend, operator), strict=True):
        for alert in group["rules"]:
            for matchers in re.findall(r"[a-z_]\{([^}]*)\}", alert["expr"]):
                assert matchers.strip().startswith(selector), alert["alert"]


def test_without_a_monitor_the_jobs_have_to_be_named() -> None:
    with pytest.raises(
        ChartRefused, match=r"metrics\.prometheusRule\.enabled .* metrics\.prometheusRule\.jobs"
    ):
        render(nested("metrics.prometheusRule.enabled", True))


def test_what_is_switched_off_is_not_missed() -> None:
    def names(values: dict[str, Any]) -> set[str]:
        (rule,) = render({**values, **MONITORED}).all("PrometheusRule")
        return {alert["alert"] for group in rule["spec"]["groups"] for alert in group["rules"]}

    without = names({"operator": {"enabled": False}})
    assert set(rules()) - without == {
        "FlexServOperatorGone",
        "FlexServOperatorLoopStale",
        "FlexServModelQuarantined",
        "FlexServPinnedModelNotReady",
    }
    assert "FlexServBackendDown" not in names({"backend": {"replicas": 0}})
    assert not render().all("PrometheusRule")
