"""The tag of an image follows from its sources, and from nothing else."""

from pathlib import Path

import pytest
from imagemaking import build, torch_wheel
from imagemaking.inputs import IMAGES, copy_sources, tag

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what the images are built from."""
    copy_sources(ROOT, tmp_path / "copy")
    return tmp_path / "copy"


def tags(root: Path, *choices: str) -> dict[str, str]:
    return {image.target: tag(root, image, choices) for image in IMAGES}


def test_a_copy_of_the_sources_has_the_tags_of_the_original(sources: Path) -> None:
    assert tags(sources) == tags(ROOT)


@pytest.mark.parametrize(
    ("edited", "changed"),
    [
        ("backend/hf_transformers_backend/errors.py", {"backend"}),
        ("operator/flexserv_operator/__main__.py", {"operator"}),
        ("constraints.txt", {"backend", "operator"}),
        ("Dockerfile", {"backend", "operator"}),
    ],
)
def test_an_edit_changes_the_tag_of_the_images_that_hold_the_file(
    sources: Path, edited: str, changed: set[str]
) -> None:
    before = tags(sources)
    with (sources / edited).open("a") as file:
        file.write("# edited\n")
    after = tags(sources)
    assert {target for target in before if before[target] != after[target]} == changed


def test_a_renamed_file_changes_the_tag(sources: Path) -> None:
    before = tags(sources)["operator"]
    package = sources / "operator" / "flexserv_operator"
    (package / "decide.py").rename(package / "decision.py")
    assert tags(sources)["operator"] != before


def test_the_base_image_and_the_torch_build_are_part_of_the_tag() -> None:
    assert tags(ROOT, "base:1") != tags(ROOT, "base:2")
    assert tags(ROOT, "base:1", "torch==2") != tags(ROOT, "base:1")


def test_the_torch_build_is_no_matter_of_the_operators_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_wheel, "find", lambda python: None)
    with_cuda = build.names()
    monkeypatch.setattr(torch_wheel, "find", lambda python: Path("torch+cpu.whl"))
    without = build.names()
    assert {image.target for image in IMAGES if with_cuda[image] != without[image]} == {"backend"}


@pytest.mark.parametrize("folder", ["__pycache__", ".mypy_cache", "flexserv.egg-info"])
def test_what_tools_leave_behind_is_no_source(sources: Path, folder: str) -> None:
    before = tags(sources)
    (sources / "backend" / folder).mkdir()
    (sources / "backend" / folder / "left.py").write_text("")
    assert tags(sources) == before
    copy_sources(sources, sources.parent / "again")
    assert not list((sources.parent / "again").rglob("left.py"))


def test_every_file_that_the_dockerfile_copies_is_a_source(sources: Path) -> None:
    copied = {
        word
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
        if not word.startswith(".build/")
    }
    assert copied and all((sources / word).exists() for word in copied)
