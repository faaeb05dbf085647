"""The packages of an image are those of its extras, and every one of them is pinned."""

import re
from pathlib import Path

import pytest
from imagemaking.requirements import requirements

ROOT = Path(__file__).resolve().parents[3]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
PINS = {
    re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
    for line in (ROOT / "constraints.txt").read_text().splitlines()
}


def test_extras_are_joined_in_order() -> None:
    text = '[project.optional-dependencies]\na = ["one>=1"]\nb = ["two", "three"]\n'
    assert requirements(text, ["b", "a"]) == ["two", "three", "one>=1"]


def test_an_unknown_extra_is_named() -> None:
    with pytest.raises(ValueError, match="no extra gpu"):
        requirements(PYPROJECT, ["backend", "gpu"])


def test_the_operator_needs_no_torch() -> None:
    assert not [
        line for line in requirements(PYPROJECT, ["operator"]) if re.match("torch|transformers", line)
    ]


@pytest.mark.parametrize("extra", ["backend", "cuda", "operator", "dev"])
def test_every_requirement_is_pinned(extra: str) -> None:
    for line in requirements(PYPROJECT, [extra]):
        name = re.match(r"[A-Za-z0-9._-]+", line)
        assert name and re.sub(r"[-_.]+", "-", name[0]).lower() in PINS, line


def test_constraints_are_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!]+", line)] == []
