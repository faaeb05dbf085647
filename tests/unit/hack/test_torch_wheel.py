"""Which torch an installation gets follows from TORCH_FIND_LINKS alone."""

from pathlib import Path

import pytest
from imagemaking import torch_wheel
from lab.errors import MissingError


def test_without_the_variable_the_index_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_FIND_LINKS", raising=False)
    assert torch_wheel.find() is None


def test_the_wheel_of_the_pinned_version_and_the_asked_python_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr("os.uname", lambda: type("Machine", (), {"machine": "x86_64"}))
    version = torch_wheel.pinned_version()
    for name in (
        f"torch-{version}+cpu-cp311-cp311",
        f"torch-{version}+cpu-cp312-cp312",
        "torch-1.0+cpu-cp311-cp311",
    ):
        (tmp_path / f"{name}-manylinux_2_28_x86_64.whl").touch()
    found = torch_wheel.find("cp311")
    assert found and found.name == f"torch-{version}+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


def test_a_folder_without_the_wheel_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TORCH_FIND_LINKS", str(tmp_path))
    with pytest.raises(MissingError, match="unset it to use PyPI's torch"):
        torch_wheel.find()
