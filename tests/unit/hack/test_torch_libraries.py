"""What belongs to torch, and how large it came: asked of the packages beside these tests."""

from importlib.metadata import distribution
from pathlib import Path

import pytest
from imagemaking.torch_libraries import recorded_size, with_requirements


def test_what_torch_requires_belongs_to_it_at_any_depth_and_what_requires_torch_does_not() -> None:
    found = with_requirements("torch")
    assert {"torch", "sympy", "mpmath", "jinja2", "markupsafe"} <= set(found)
    assert not {"transformers", "accelerate", "numpy", "pytest"} & set(found)


def test_what_an_extra_requires_belongs_only_to_who_asks_for_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuda-toolkit is such a one: torch asks for some of its libraries by extras."""
    kit = 'Requires-Dist: fast-part; extra == "fast"\nRequires-Dist: absent-part; extra == "slow"\n'
    for name, requires in [("root", "Requires-Dist: some-kit[fast]\n"), ("some_kit", kit), ("fast_part", "")]:
        folder = tmp_path / f"{name}-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n{requires}")
    monkeypatch.syspath_prepend(tmp_path)
    assert set(with_requirements("root")) == {"root", "some-kit", "fast-part"}


def test_the_recorded_size_is_that_of_the_files_without_byte_code() -> None:
    one = distribution("sympy")
    lying = [Path(str(file.locate())) for file in one.files or () if file.suffix != ".pyc"]
    sizes = sum(file.stat().st_size for file in lying if file.name != "RECORD" and file.exists())
    assert recorded_size(one) == sizes
