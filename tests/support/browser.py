"""Debian's headless Chromium, driven by playwright."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

CHROMIUM = "/usr/bin/chromium-headless-shell"


@contextmanager
def chromium() -> Iterator[Browser]:
    """One browser process, ended with the block. Skips where there is no Chromium."""
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no {CHROMIUM}: run `hack/tools browser`")
    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses to run as root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()
