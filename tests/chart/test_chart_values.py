"""values.yaml, its schema, the templates and the README say the same."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.support.chart import (
    CHART,
    ROOT,
    ChartRefused,
    Object,
    default_values,
    helm,
    render,
    scenario,
    schema,
    tool,
)

Path = tuple[str, ...]


def dereferenced(node: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        found: dict[str, Any] = schema()["$defs"][node["$ref"].rpartition("/")[2]]
        return found
    return node


def at(path: Path) -> dict[str, Any]:
    """What the schema says of a value."""
    node = schema()
    for name in path:
        node = dereferenced(node["properties"][name])
    return node


def closed_levels(node: dict[str, Any], above: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    node = dereferenced(node)
    if "properties" in node and "items" not in node:
        yield above, node
        for name, child in node["properties"].items():
            yield from closed_levels(child, (*above, name))


def leaves(values: dict[str, Any], above: Path = ()) -> Iterator[Path]:
    """The path of every value that is no object of ours: what the schema leaves open is passed on."""
    for name, value in values.items():
        path = (*above, name)
        if isinstance(value, dict) and "properties" in at(path):
            yield from leaves(value, path)
        else:
            yield path


LEAVES = sorted(leaves(default_values()))


def value_at(values: Any, path: Path) -> Any:
    for name in path:
        values = values[name]
    return values


def test_schema_and_values_have_the_same_names_and_the_schema_is_closed() -> None:
    for path, node in closed_levels(schema()):
        assert node["additionalProperties"] is False, path
        expected = set(value_at(default_values(), path)) | ({"global"} if not path else set())
        assert set(node["properties"]) == expected, path


def test_a_value_that_the_templates_need_cannot_be_taken_away() -> None:
    for path, node in closed_levels(schema()):
        not_null = {
            name
            for name, child in node["properties"].items()
            if "null" not in dereferenced(child).get("type", []) and name != "global"
        }
        assert set(node.get("required", [])) == not_null, path


def test_every_value_has_a_comment() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    documented: set[Path] = set()
    above: list[tuple[int, str]] = []
    comment = False
    for line in lines:
        if line.lstrip().startswith("#"):
            comment = comment or line.lstrip().startswith("# -- ")
        elif match := re.match(r"( *)([A-Za-z]+):", line):
            above = [(indent, name) for indent, name in above if indent < len(match[1])]
            above.append((len(match[1]), match[2]))
            if comment:
                documented.add(tuple(name for _, name in above))
            comment = False

    assert documented == set(LEAVES)


@pytest.mark.parametrize("name", ["flexserv", "flexserv-models"])
def test_the_readme_was_made_from_these_values(name: str) -> None:
    chart = CHART.parent / name
    made = subprocess.run(
        [tool("helm-docs"), "--dry-run", "--skip-version-footer", "--log-level", "error",
         "--chart-search-root", str(chart)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    remedy = "run helm-docs --chart-search-root charts --skip-version-footer"

    assert made.stdout.strip() == (chart / "README.md").read_text(encoding="utf-8").strip(), remedy


@pytest.mark.parametrize("name", ["flexserv", "flexserv-models"])
def test_a_chart_names_the_version_of_the_project(name: str) -> None:
    chart = yaml.safe_load((CHART.parent / name / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert chart["appVersion"] == project["version"]


# Values that show only where another value says so.
SHOWN_WITH: dict[str, dict[str, Any]] = {
    "backend.auth.token.secretKey": {"backend": {"auth": {"token": {"secretName": "x"}}}},
    "backend.auth.adminToken.secretKey": {"backend": {"auth": {"adminToken": {"secretName": "x"}}}},
    "backend.huggingFace.tokenSecretKey": {"backend": {"huggingFace": {"tokenSecretName": "x"}}},
    "backend.models": {"backend": {"models": {"existingClaim": "x"}}},
    "backend.cache": {"backend": {"cache": {"persistent": True}}},
    "backend.service.nodePort": {"backend": {"service": {"type": "NodePort"}}},
    "metrics.serviceMonitor": {"metrics": {"serviceMonitor": {"enabled": True}}},
    "metrics.podMonitor": {"metrics": {"podMonitor": {"enabled": True}}},
    "metrics.prometheusRule": {
        "metrics": {"prometheusRule": {"enabled": True}, "serviceMonitor": {"enabled": True}}
    },
    "metrics.dashboard": {"metrics": {"dashboard": {"enabled": True}}},
    "networkPolicy": {"networkPolicy": {"enabled": True}},
    "backend.autoscaling": {"backend": {"autoscaling": {"enabled": True}}},
    "backend.ingress": {"backend": {"ingress": {"enabled": True, "hosts": ["one"]}}},
}
SPECIAL: dict[str, Any] = {
    "metrics.prometheusRule.enabled": False,
    "metrics.prometheusRule.thresholds.errorRatio": 0.5,
    "metrics.prometheusRule.thresholds.cacheUsedRatio": 0.5,
    "backend.resources": {"limits": {"memory": "1Gi"}},
    "operator.resources": {"requests": {"cpu": "1"}},
    "backend.gpu.resourceName": "example.com/gpu",
    "backend.models.mountPath": "/weights",
    "backend.autoscaling.metrics": [{"type": "Pods"}],
    "backend.service.ipFamilies": ["IPv6"],
    "backend.ingress.hosts": ["two"],
    "backend.progressDeadlineSeconds": 9999,
    "backend.service.type": "LoadBalancer",
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}],
    "imagePullSecrets": [{"name": "x"}],
}


def another(path: Path, default: Any) -> Any:
    """A value that the schema allows, other than `default`."""
    dotted, node = ".".join(path), at(path)
    if dotted in SPECIAL:
        return SPECIAL[dotted]
    kinds = node["type"] if isinstance(node["type"], list) else [node["type"]]
    if "enum" in node:
        return next(word for word in node["enum"] if word not in (default, None))
    if "boolean" in kinds:
        return not default
    if ("integer" in kinds and "string" not in kinds) or "number" in kinds:
        larger = (default or int(node.get("minimum", 0))) + 1
        return larger if larger <= node.get("maximum", larger) else default / 2
    if "array" in kinds:
        return ["--x"] if node["items"].get("type") == "string" else [{"name": "x"}]
    if "object" in kinds:
        return {"x": "y"}
    pattern = node.get("pattern", "")
    texts = ("x", "y", "9Gi", "9s", "https://x", "sha256:" + "1" * 64)
    return next(text for text in texts if text != default and re.search(pattern, text))


def merged(base: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    values = deepcopy(base)
    node = values
    for name in path[:-1]:
        node = node.setdefault(name, {})
    node[path[-1]] = value
    return values


def shows(path: Path) -> bool:
    """Does another value for this path change what is rendered?"""
    dotted = ".".join(path)
    base = next(
        (values for prefix, values in SHOWN_WITH.items() if f"{dotted}.".startswith(f"{prefix}.")), {}
    )
    if path[0] != "crds":
        base = {**base, "crds": {"enabled": False}}  # to render the CRD takes a third of the time
    try:
        default = value_at(base, path)
    except KeyError:
        default = value_at(default_values(), path)
    shown: tuple[Object, ...] = render(base).objects
    return render(merged(base, path, another(path, default))).objects != shown


def test_every_value_is_used() -> None:
    # The backend's settings are read back by the backend itself in test_chart_settings.
    ours = [path for path in LEAVES if path[:2] != ("backend", "settings")]
    with ThreadPoolExecutor(2) as pool:
        results = dict(zip(ours, pool.map(shows, ours), strict=True))

    assert [".".join(path) for path, shown in results.items() if not shown] == []


def test_every_value_that_a_template_reads_exists() -> None:
    missing = []
    for template in sorted(CHART.glob("templates/**/*.*")):
        text = template.read_text(encoding="utf-8")
        aliases = dict(re.findall(r"\$(\w+) := \.(?:context\.)?Values\.([\w.]+)", text))
        reads = re.findall(r"\.Values\.([\w.]+)", text)
        reads += [
            f"{aliases[name]}.{rest}"
            for name, rest in re.findall(r"\$(\w+)\.([\w.]+)", text)
            if name in aliases
        ]
        for read in reads:
            try:
                value_at(default_values(), tuple(read.rstrip(".").split(".")))
            except (KeyError, TypeError):
                missing.append(f"{template.name}: {read}")

    assert missing == []


def test_the_everything_on_scenario_says_nothing_that_is_the_default() -> None:
    """It exists to leave the defaults: what equals them tests nothing, unless it is there to be read."""
    values = scenario(CHART / "ci" / "everything-on-values.yaml")
    same = [
        p for p in leaves(values) if p in set(LEAVES) and value_at(values, p) == value_at(default_values(), p)
    ]

    assert {".".join(path) for path in same} <= {
        "backend.gpu.count", "backend.cache.keep", "backend.settings.oomMonitor", "crds.enabled",
    }  # fmt: skip


def test_a_broken_extra_object_is_not_swallowed() -> None:
    with pytest.raises(ChartRefused, match="undefined_function"):
        render({"extraObjects": ["{{ undefined_function }}"]})


def test_the_chart_packs(tmp_path: Any) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path))
    packed = next(tmp_path.glob("flexserv-*.tgz"))
    names = subprocess.run(
        ["tar", "tzf", packed], capture_output=True, text=True, timeout=20, check=True
    ).stdout.split()

    assert "flexserv/files/flexservmodel-crd.yaml" in names
    assert not [name for name in names if name.startswith("flexserv/ci/")]
