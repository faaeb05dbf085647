"""The admin token comes from a mounted Secret, and the kubelet may swap it at any time."""

import os
from pathlib import Path

import pytest

from tests.support.operator_world import World

FAST = {"tick_seconds": "1", "poll_timeout_seconds": "1"}


def mount(folder: Path, token: str) -> Path:
    """Put a token into a folder as the kubelet does: a new folder, and a link that is swapped at once."""
    content = folder / f"..{token}"
    content.mkdir(parents=True)
    (content / "token").write_text(f"{token}\n")
    fresh = folder / "..data_tmp"
    fresh.symlink_to(content.name)
    os.replace(fresh, folder / "..data")
    visible = folder / "token"
    if not visible.is_symlink():
        visible.symlink_to(Path("..data") / "token")
    return visible


@pytest.mark.parametrize("guards_reads", [False, True])
def test_a_rotated_token_is_used_without_a_restart(world: World, tmp_path: Path, guards_reads: bool):
    file = mount(tmp_path / "secret", "first")
    backend = world.add_pod("pod-a", "127.0.0.2", token="first", guards_reads=guards_reads)
    operator = world.start_operator(admin_token_file=str(file), **FAST)
    world.apply("chat", model="org/chat")
    world.reaches("chat", "Loaded")

    backend.token = "second"
    world.apply("more", model="org/more")
    status = world.reaches("more", "Failed", "BackendRefused")
    assert "another token is needed" in status["replicas"][0]["message"]
    assert world.condition("more", "Stalled")["status"] == "True"
    mount(tmp_path / "secret", "second")
    world.reaches("more", "Loaded", timeout=60)

    log = operator.log.read_text()
    assert "first" not in log and "second" not in log
