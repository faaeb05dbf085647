"""The table of complaints names tests that there are, and all of those that are named after one."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
FOLDER = TESTS / "integration" / "operator"
TABLE = (FOLDER / "README.md").read_text()


def functions(*files: Path) -> set[str]:
    return {
        name for file in files for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M)
    }


def test_every_named_test_exists():
    named = set(re.findall(r"`(test_\w+)`", TABLE))
    assert len(named) > 15
    assert named <= functions(*TESTS.rglob("test_*.py"))


def test_every_named_file_exists():
    for name in re.findall(r"`((?:[\w/]+/)?test_\w+\.py)`", TABLE):
        assert (FOLDER / name).exists() or (TESTS.parent / name).exists(), name


def test_every_test_that_is_named_after_a_complaint_says_whose():
    named = set(re.findall(r"`(test_\w+)`", TABLE))
    assert functions(FOLDER / "test_field_complaints.py") <= named
