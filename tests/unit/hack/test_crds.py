"""The CRDs of others, found in the modules that carry them."""

import json
from pathlib import Path

import pytest
from lab import crds


def test_every_module_that_is_read_is_required_and_no_other() -> None:
    lines = (crds.MODULE / "go.mod").read_text().splitlines()
    required = {line.split()[0] for line in lines if line.startswith("\t")}

    assert required == set(crds.FILES)
    sums = (crds.MODULE / "go.sum").read_text()
    assert all(f"{module} v" in sums for module in required)


def test_the_folders_of_modules_are_read_from_objects_in_a_row() -> None:
    entries = [{"Path": "example.org/one", "Dir": "/go/one"}, {"Path": "example.org/two", "Dir": "/go/two"}]
    listing = "\n".join(json.dumps(entry, indent="\t") for entry in entries) + "\n"

    assert crds._folders(listing) == {"example.org/one": Path("/go/one"), "example.org/two": Path("/go/two")}


def test_another_version_is_another_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = crds.key()
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((crds.MODULE / name).read_bytes())
    monkeypatch.setattr(crds, "MODULE", tmp_path)
    assert crds.key() == before
    (tmp_path / "go.mod").write_text((tmp_path / "go.mod").read_text().replace(" v", " v9"))

    assert crds.key() != before
