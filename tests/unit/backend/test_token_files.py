"""Token files: what they say holds for a second, so that a request rarely waits for the disk."""

import logging
from pathlib import Path
from typing import Any

import pytest
from hf_transformers_backend.access import TOKEN_FILE_SECONDS, AccessPolicy
from hf_transformers_backend.settings import load_settings
from starlette.datastructures import Headers

from tests.support.fake_loader import HandClock


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


def policy(clock: HandClock, **settings: Any) -> AccessPolicy:
    return AccessPolicy(load_settings(**settings), "instance", clock.monotonic)


def rights(policy: AccessPolicy, token: str) -> str:
    return policy.rights(Headers({"Authorization": f"Bearer {token}"}))


@pytest.mark.parametrize(
    ("setting", "allowed", "refused"),
    [("flexserv_token_file", "admin", "none"), ("admin_token_file", "admin", "user")],
)
def test_a_file_is_read_again_after_a_second_and_not_before(
    clock: HandClock, file: Path, setting: str, allowed: str, refused: str
) -> None:
    access = policy(clock, **{setting: file})
    assert rights(access, "first") == allowed
    file.write_text("second")
    clock.advance(TOKEN_FILE_SECONDS - 0.01)
    assert (rights(access, "first"), rights(access, "second")) == (allowed, refused)
    clock.advance(0.02)
    assert (rights(access, "first"), rights(access, "second")) == (refused, allowed)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_file_that_holds_no_token_any_more_lets_nobody_in_until_it_does(
    clock: HandClock, file: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    access = policy(clock, flexserv_token_file=file)
    assert rights(access, "first") == "admin"
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    clock.advance(TOKEN_FILE_SECONDS)
    for token in ("first", "", "\xff\xfe", "None"):
        assert rights(access, token) == "none"
    unreadable = content is None or bool(content.strip())
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * unreadable
    file.write_text("third")
    clock.advance(TOKEN_FILE_SECONDS)
    assert rights(access, "third") == "admin"
