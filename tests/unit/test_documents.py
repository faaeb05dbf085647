"""What README, CHANGELOG and the chart say must be true."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_readmes_tables_are_those_that_the_declarations_generate() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "hack" / "docs"), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_every_make_target_that_readme_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]+)", README, re.MULTILINE))
    assert named, "README names no make target"
    assert named <= targets


def test_every_chart_value_that_readme_names_exists() -> None:
    values = yaml.safe_load((ROOT / "charts" / "flexserv" / "values.yaml").read_text())
    named = set(
        re.findall(r"`(?:--set )?((?:backend|operator|crds|metrics)\.[A-Za-z.]+[A-Za-z])[`:=]", README)
    )
    assert len(named) >= 3
    for path in named:
        node = values
        for part in path.split("."):
            assert isinstance(node, dict) and part in node, f"README names {path}"
            node = node[part]


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)[0].split())
    shown = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    ).stdout
    assert {match for match in re.findall(r"^  make ([a-z-]+)", shown, re.MULTILINE)} == phony


def test_every_path_in_readmes_layout_exists() -> None:
    block = README.split("## Layout")[1].split("```")[1]
    paths = [line.split()[0] for line in block.strip().splitlines()]
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_program_in_hack_explains_itself() -> None:
    programs = [p for p in (ROOT / "hack").iterdir() if p.is_file() and p.read_bytes().startswith(b"#!")]
    assert programs
    for program in programs:
        result = subprocess.run(
            [str(program), "--help"], capture_output=True, text=True, timeout=30, check=False
        )
        assert result.returncode == 0 and result.stdout.strip(), program.name


NO_REASONS = {
    # The operator's other words with a capital: types of conditions and of Events, phases, states, kinds.
    "Accept", "ApiServer", "Authorization", "Available", "ContainerCreating", "Degraded", "Embedding",
    "Event", "Evicted", "Failed", "FlexServModel", "Normal", "NotResident", "NotStalled", "OnDemand",
    "Pending", "Pinned", "PodInitializing", "Quarantine", "Ready", "Reconciling", "Resident", "Settled",
    "Stalled", "Succeeded", "True", "Unreachable", "Warning",
}  # fmt: skip


def test_the_runbook_explains_every_reason_that_the_operator_gives_and_no_other() -> None:
    words = {
        node.value
        for file in (ROOT / "operator" / "flexserv_operator").glob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch("[A-Z]+[a-z][A-Za-z]+", node.value)
    }
    table = (
        (ROOT / "charts" / "flexserv" / "RUNBOOK.md").read_text(encoding="utf-8").split("\n## Reasons\n")[1]
    )
    cells = re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
    rows = [reason for cell in cells for reason in re.findall(r"`(\w+)`", cell)]
    assert sorted(rows) == sorted(words - NO_REASONS)


def test_hacks_readme_has_a_row_for_every_program() -> None:
    text = (ROOT / "hack" / "README.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`([a-z-]+)`", cell)]
    programs = [p.name for p in (ROOT / "hack").iterdir() if p.is_file() and p.read_bytes().startswith(b"#!")]
    assert sorted(named) == sorted(programs)


def test_there_is_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "charts" / "flexserv" / "Chart.yaml").read_text())
    newest = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert chart["appVersion"] == version == newest


def test_no_file_names_a_package_registry_or_a_machine() -> None:
    """Constraints, module files and scripts must work anywhere: no download addresses in them."""
    files = [ROOT / "constraints.txt", *(ROOT / "hack" / "go").rglob("go.*"), *(ROOT / "hack").glob("*")]
    for file in files:
        if file.is_file():
            assert not re.search(
                r"https?://(?!(localhost|127\.0\.0\.1|10\.|json-schema|www\.apache))[\w.-]*(pypi|proxy|registry|mirror)",
                file.read_text(errors="ignore"),
            ), file
