"""Models named by a path on this machine."""

from pathlib import Path

import pytest
from hf_transformers_backend.download_room import DownloadRoom
from hf_transformers_backend.errors import NotFound, Unprocessable
from hf_transformers_backend.hub import find_files
from hf_transformers_backend.identity import ModelIdentity


def find(path: str) -> Path:
    return find_files(ModelIdentity(path), lambda done, total: None, DownloadRoom(None)).path


def test_a_path_at_which_nothing_can_be_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    for path in (f"/{'x' * 300}", f"{tmp_path}/file/below", f"{tmp_path}/loop", f"{tmp_path}/file"):
        with pytest.raises(NotFound) as caught:
            find(path)
        assert path in caught.value.message


def test_a_folder_that_may_not_be_read_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))  # root is never refused

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(Unprocessable, match="Permission denied") as caught:
        find(str(tmp_path))
    assert caught.value.param == "model"


def test_a_folder_without_a_configuration_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(Unprocessable, match=r"no config\.json"):
        find(str(tmp_path))
