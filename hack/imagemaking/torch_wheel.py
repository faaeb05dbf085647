"""torch's wheel without CUDA, where TORCH_FIND_LINKS names a folder that has it."""

import os
import sys
from pathlib import Path

from lab.errors import MissingError
from lab.places import HACK

VARIABLE = "TORCH_FIND_LINKS"
THIS_PYTHON = f"cp{sys.version_info.major}{sys.version_info.minor}"


def find(python: str = THIS_PYTHON) -> Path | None:
    """The +cpu wheel of the pinned torch for `python` (like cp311); None when the variable is not set.

    Raises MissingError when the variable names a folder without that wheel.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    pattern = f"torch-{pinned_version()}+cpu-{python}-{python}-*_{os.uname().machine}.whl"
    found = sorted(Path(folder).glob(pattern))
    if not found:
        raise MissingError(
            f"{VARIABLE}={folder} has no {pattern}: name another folder, or unset it to use PyPI's torch"
        )
    return found[-1].absolute()


def pinned_version() -> str:
    """The version of torch in constraints.txt."""
    lines = (HACK.parent / "constraints.txt").read_text().splitlines()
    return next(line.removeprefix("torch==") for line in lines if line.startswith("torch=="))
