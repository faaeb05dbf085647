"""Tokens: who needs which, and that a file is read again."""

from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.server import RunningServer

USER, ADMIN = "user-token", "admin-token"
OPEN = [("GET", "/health"), ("GET", "/v1/flexserv/health"), ("GET", "/metrics"), ("GET", "/openapi.json")]
FOR_USERS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/flexserv/models/loaded"),
    ("GET", "/v1/flexserv/info"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/load_model"),
]
FOR_ADMINS = [
    ("POST", "/v1/flexserv/models/load"),
    ("POST", "/v1/flexserv/models/unload"),
    ("POST", "/v1/flexserv/declared"),
    ("POST", "/v1/flexserv/synced"),
    ("POST", "/reset"),
]


def status(server: RunningServer, method: str, path: str, token: str | None) -> int:
    """Of a request without a body: 401 before anything else, or what the route thinks of it."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    response = server.client.request(method, path, headers=headers)
    if response.status_code == 401:
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.json()["error"]["type"] == "authentication_error"
        assert USER not in response.text and ADMIN not in response.text
    return response.status_code


def test_each_route_wants_its_token_and_a_new_file_counts_within_a_second(tmp_path: Path) -> None:
    file = tmp_path / "admin"
    file.write_text(f"{ADMIN}\n")
    with RunningServer("--admin-token-file", str(file), env={"FLEXSERV_FLEXSERV_TOKEN": USER}) as server:
        for method, path in OPEN:
            assert status(server, method, path, None) == 200
        for method, path in FOR_USERS:
            assert status(server, method, path, None) == 401, path
            assert status(server, method, path, "wrong") == 401, path
            assert status(server, method, path, USER) != 401, path
            assert status(server, method, path, ADMIN) != 401, path
        for method, path in FOR_ADMINS:
            assert status(server, method, path, None) == 401, path
            assert status(server, method, path, USER) == 401, path
            assert status(server, method, path, ADMIN) != 401, path
        assert (
            "********"
            in server.client.get("/v1/flexserv/info", headers={"Authorization": f"Bearer {USER}"}).text
        )
        file.write_text("rotated")
        eventually(lambda: status(server, "POST", "/v1/flexserv/synced", "rotated") == 200, 20)
        assert status(server, "POST", "/v1/flexserv/synced", ADMIN) == 401
        file.unlink()
        eventually(lambda: status(server, "POST", "/v1/flexserv/synced", "rotated") == 401, 20)
        assert USER not in server.log() and ADMIN not in server.log()


@pytest.mark.parametrize("path", [path for _, path in FOR_ADMINS])
def test_without_tokens_everything_is_open(server: RunningServer, path: str) -> None:
    assert status(server, "POST", path, None) != 401
