"""The connection under the requests."""

import time

from tests.support.server import RunningServer


def test_an_answer_goes_out_at_once(server: RunningServer) -> None:
    """Not after the client's acknowledgement of its first part, which takes 40 ms or more."""
    seconds = []
    for _ in range(40):
        began = time.monotonic()
        server.client.get("/health").raise_for_status()
        seconds.append(time.monotonic() - began)
    assert min(seconds[10:]) < 0.03
