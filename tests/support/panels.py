"""The queries of a Grafana dashboard as Grafana would send them, and what may be said of their answers."""

import json
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

Key = tuple[str, ...] | str
Values = Mapping[tuple[str, ...], float]
Check = Callable[[Values], None]

SLACK = 1.3
"""Prometheus extrapolates the growth of a counter by up to one scrape interval; five scrapes make it 1.25."""


class Dashboard:
    """A dashboard's JSON; `variables` are the values of its variables and of those that Grafana brings."""

    def __init__(self, path: Path, variables: Mapping[str, str]) -> None:
        self._content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self._variables = variables

    def queries(self) -> dict[str, list[str]]:
        """The queries of each panel, by its title."""
        panels = [panel for panel in self._content["panels"] if panel["type"] != "row"]
        titles = [panel["title"] for panel in panels]
        assert len(titles) == len(set(titles)), "two panels have one title"
        return {
            panel["title"]: [self.filled(target["expr"]) for target in panel["targets"]] for panel in panels
        }

    def lookups(self) -> list[str]:
        """What the dashboard asks for to fill its own variables."""
        queries = [v["query"]["query"] for v in self._content["templating"]["list"] if v["type"] == "query"]
        found = [re.fullmatch(r"label_values\((.*), \w+\)", query) for query in queries]
        return [self.filled(match[1]) for match in found if match is not None]

    def filled(self, expression: str) -> str:
        """The expression without variables."""
        for name, value in self._variables.items():
            expression = expression.replace(f"${name}", value)
        assert "$" not in expression, f"a variable that nobody sets: {expression}"
        return expression


def labeled(answer: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """Values by the values of their labels, in the order of the labels' names; a NaN is no value."""
    return {
        tuple(value for _, value in sorted(json.loads(labels).items())): value
        for labels, value in answer.items()
        if not math.isnan(value)
    }


def exactly(expected: Mapping[Key, float], within: float = 1e-9) -> Check:
    """These series and no others, with these values, give or take `within`."""

    def check(found: Values) -> None:
        assert found == {key: pytest.approx(value, abs=within) for key, value in _keyed(expected).items()}

    return check


def grew(expected: Mapping[Key, float], *, seconds: float = 1) -> Check:
    """These counters grew by as much and all others stayed; `seconds` is the window of a rate."""
    wanted = {key: value for key, value in _keyed(expected).items() if value}

    def check(found: Values) -> None:
        grown = {key: value * seconds for key, value in found.items() if value}
        assert grown.keys() == wanted.keys()
        for key, value in wanted.items():
            assert value * 0.999 <= grown[key] <= value * SLACK, (key, value, grown[key])

    return check


def between(low: float, high: float, *keys: Key) -> Check:
    """These series (by default one without labels) and no others, somewhere in between."""
    wanted = set(_keyed(dict.fromkeys(keys or ((),), 0.0)))

    def check(found: Values) -> None:
        assert found.keys() == wanted
        assert all(low <= value <= high for value in found.values()), found

    return check


def bucket_of(buckets: Sequence[float], seconds: float) -> float:
    """The upper bound of the bucket that counts something that took this long."""
    place = bisect_left(buckets, seconds)
    return buckets[min(place, len(buckets) - 1)]


def _keyed(values: Mapping[Key, float]) -> dict[tuple[str, ...], float]:
    return {(key,) if isinstance(key, str) else key: value for key, value in values.items()}
