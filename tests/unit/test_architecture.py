"""Who may import what, where import-linter cannot say it: single modules of other distributions."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BACKEND = ROOT / "backend" / "hf_transformers_backend"
OPERATOR = ROOT / "operator" / "flexserv_operator"


def imports(file: Path) -> Iterator[str]:
    """Every module that the file imports, wherever in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def importers(package: Path, module: str) -> set[str]:
    """Paths (relative to the package) of the files that import `module` or something below it."""
    return {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if any(name == module or name.startswith(f"{module}.") for name in imports(file))
    }


@pytest.mark.parametrize(
    ("package", "module", "allowed"),
    [
        (BACKEND, "transformers.cli", ("upstream/",)),
        (BACKEND, "psutil", ("resource_metrics.py", "cpu.py", "gpu.py", "cgroup.py")),
        (BACKEND, "pynvml", ("resource_metrics.py", "gpu.py")),
        (OPERATOR, "kopf", ("handlers.py", "__main__.py")),
    ],
)
def test_a_library_has_one_door(package: Path, module: str, allowed: tuple[str, ...]) -> None:
    found = importers(package, module)
    assert found, f"nobody imports {module}: this rule guards nothing"
    assert {file for file in found if not file.startswith(allowed)} == set()
