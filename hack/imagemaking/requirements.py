"""Print what named extras of pyproject.toml ask for, as a requirements file. Runs inside the image build."""

import sys
import tomllib
from collections.abc import Sequence


def requirements(pyproject: str, extras: Sequence[str]) -> list[str]:
    """The requirements of the extras, in order. Raises ValueError for an extra that is not declared."""
    declared: dict[str, list[str]] = tomllib.loads(pyproject)["project"]["optional-dependencies"]
    if unknown := [extra for extra in extras if extra not in declared]:
        raise ValueError(
            f"no extra {', '.join(unknown)} in pyproject.toml: choose from {', '.join(declared)}"
        )
    return [line for extra in extras for line in declared[extra]]


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(*requirements(file.read(), sys.argv[2].split(",")), sep="\n")
