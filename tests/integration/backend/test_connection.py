"""The connection under the requests."""

import time

import httpx

from tests.support.server import RunningServer

TRIES = 200


def test_an_answer_goes_out_at_once(server: RunningServer) -> None:
    """Not after the client's acknowledgement of its first part, which takes 40 ms or more."""
    with httpx.Client(base_url=server.base_url, timeout=60) as client:
        for _ in range(10):  # what a new connection sends is acknowledged at once
            client.get("/health").raise_for_status()
        fastest = float("inf")
        for _ in range(TRIES):
            began = time.monotonic()
            client.get("/health").raise_for_status()
            fastest = min(fastest, time.monotonic() - began)
            if fastest < 0.03:
                break
    assert fastest < 0.03
