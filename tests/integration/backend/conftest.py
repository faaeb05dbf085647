"""One real server for the tests that leave it as they found it: no default model, all may be loaded."""

from collections.abc import Iterator

import pytest

from tests.support.server import RunningServer

BODY_LIMIT = 1_000_000


@pytest.fixture(scope="session")
def shared_server() -> Iterator[RunningServer]:
    with RunningServer("--device", "cpu", "--max-request-bytes", str(BODY_LIMIT)) as server:
        yield server


@pytest.fixture
def server(shared_server: RunningServer) -> RunningServer:
    """The shared server, empty."""
    reset = shared_server.client.post("/reset")
    assert reset.status_code == 200, reset.text
    shared_server.client.post("/v1/flexserv/declared", json={"models": [], "hash": "none"}).raise_for_status()
    return shared_server
