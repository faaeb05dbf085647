"""A model on the shelf is complete or not there, and made anew when its recipe changes."""

from pathlib import Path

import pytest
from lab import recipe
from modelmaking import shelf

NAME = "tiny-random-llama"


def place(folder: Path, text: str = "weights") -> None:
    def make(target: Path) -> None:
        (target / "model.safetensors").write_text(text)
        (target / "model.safetensors").chmod(0o600)

    with shelf.locked(folder):
        shelf.place(folder, NAME, make)


def test_a_placed_model_is_current_and_readable_for_every_user(tmp_path: Path) -> None:
    assert not shelf.is_current(tmp_path, NAME)
    place(tmp_path)
    assert shelf.is_current(tmp_path, NAME)
    assert (tmp_path / NAME / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_a_changed_recipe_makes_the_model_outdated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(tmp_path)
    monkeypatch.setitem(shelf.RECIPES, NAME, ("vision",))
    assert not shelf.is_current(tmp_path, NAME)


def test_a_new_model_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    place(tmp_path, "old")
    place(tmp_path, "new")
    assert (tmp_path / NAME / "model.safetensors").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", NAME]


def test_a_failed_making_leaves_the_old_model_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    def fail(target: Path) -> None:
        (target / "half").write_text("")
        raise RuntimeError("out of disk")

    place(tmp_path, "old")
    with pytest.raises(RuntimeError), shelf.locked(tmp_path):
        shelf.place(tmp_path, NAME, fail)
    assert (tmp_path / NAME / "model.safetensors").read_text() == "old"
    place(tmp_path, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", NAME]


@pytest.mark.parametrize(
    ("other", "same"),
    [("x = 1\n\n\n# why\ny = (2)\n", True), ("x = 1\ny = 3\n", False)],
)
def test_a_recipe_is_its_code_without_comments_and_layout(tmp_path: Path, other: str, same: bool) -> None:
    (tmp_path / "a.py").write_text("x = 1\ny = 2\n")
    (tmp_path / "b.py").write_text(other)
    assert (recipe.digest(tmp_path / "a.py") == recipe.digest(tmp_path / "b.py")) is same
