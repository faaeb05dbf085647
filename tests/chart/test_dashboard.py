"""What the dashboard's first row says when something is wrong, by Prometheus' own rule tests."""

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.alert_cases import BACKEND, OPERATOR, Series, model_ready, ready, requests
from tests.support.chart import CHART, tool
from tests.support.panels import Dashboard

DASHBOARD = Dashboard(
    CHART / "files" / "dashboard.json", {"__rate_interval": "5m", "namespace": "models", "job": ".*"}
)
LOOKED_AT_MINUTE = 20

UP, DOWN, GONE = "1+0x60", "0+0x60", "1+0x5 stale _x60"
OPERATOR_RUNS = {f"flexserv_operator_last_cycle_timestamp_seconds{{{OPERATOR}}}": "0+60x60"}
LOADED = {f'flexserv_model_loaded{{{BACKEND},model="chat"}}': "1+0x60"}
MIXED = {**requests("200", "0+90x60"), **requests("500", "0+10x60")}
IDLE_AFTER_AN_ERROR = {**requests("200", "9+0x60"), **requests("500", "1+0x60")}
FAILED = {**requests("200", "0+90x5 stale _x60"), **requests("500", "0+10x5 stale _x60")}

CASES: list[tuple[str, Series, float | None]] = [
    # None: the panel says that it has no data.
    ("Backends ready", ready(UP, UP), 2),
    ("Backends ready", ready(UP, DOWN), 1),
    ("Backends ready", ready(GONE, GONE), 0),
    ("Models in memory", {**ready(UP, UP), **LOADED}, 1),
    ("Models in memory", ready(UP, UP), 0),
    ("Models in memory", ready(GONE, GONE), None),
    ("Errors (5xx)", {**ready(UP, UP), **MIXED}, 0.1),
    ("Errors (5xx)", {**ready(UP, UP), **requests("200", "0+90x60")}, 0),
    ("Errors (5xx)", {**ready(UP, UP), **IDLE_AFTER_AN_ERROR}, 0),
    ("Errors (5xx)", ready(UP, UP), 0),
    ("Errors (5xx)", {**ready(GONE, GONE), **FAILED}, None),
    ("Pinned models not Ready", {**OPERATOR_RUNS, **model_ready("0+0x60")}, 1),
    ("Pinned models not Ready", {**OPERATOR_RUNS, **model_ready("1+0x60")}, 0),
    ("Pinned models not Ready", {**OPERATOR_RUNS, **model_ready("0+0x60", "OnDemand")}, 0),
    ("Pinned models not Ready", OPERATOR_RUNS, 0),
    ("Pinned models not Ready", {**ready(UP, UP), **model_ready("0+0x5 stale _x60")}, None),
]


def panel_test(title: str, series: Series, value: float | None) -> dict[str, Any]:
    (expression,) = DASHBOARD.queries()[title]
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    return {
        "name": title,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": expression, "eval_time": f"{LOOKED_AT_MINUTE}m", "exp_samples": samples}
        ],
    }


def test_the_first_row_says_zero_only_of_what_it_sees(tmp_path: Path) -> None:
    tests = [panel_test(*case) for case in CASES]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"tests": tests}), encoding="utf-8")
    result = subprocess.run(
        [tool("promtool"), "test", "rules", "panels.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
