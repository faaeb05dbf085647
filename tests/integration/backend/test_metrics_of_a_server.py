"""What strangers do to the metrics of a real server, and what scrapes do to the server."""

import random
import string
import threading
import time
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.eventually import eventually
from tests.support.server import RunningServer

CHAT = "/v1/chat/completions"
ROUTES = (CHAT, "/v1/completions", "/v1/responses", "/v1/embeddings")
STRANGERS = 200


def series(server: RunningServer) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Name and labels of every sample."""
    families = text_string_to_metric_families(server.client.get("/metrics").text)
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
    }


def body(name: str, route: str) -> dict[str, object]:
    asked = {"messages": [{"role": "user", "content": "x"}]} if route == CHAT else {"prompt": "x"}
    return {"model": name, **asked, "input": "x"}


def stranger(rng: random.Random) -> str:
    letters = string.ascii_letters + string.digits + "-_./@é\u4e2d\"'{}=\\ "
    return "".join(rng.choice(letters) for _ in range(rng.randint(1, 60)))


def ask_strangely(server: RunningServer, rng: random.Random, number: int) -> None:
    name, route = stranger(rng), ROUTES[number % len(ROUTES)]
    headers = {"X-Request-Id": f"{rng.random()}", "User-Agent": f"agent-{number}", f"X-Odd-{number}": "1"}
    server.client.post(route, json=body(name, route), headers=headers)
    server.client.request(rng.choice(["GET", "PUT", "POST"]), f"/v1/odd/{number}", headers=headers)


def test_two_hundred_strangers_add_no_series(server: RunningServer) -> None:
    """Names, paths, methods and headers are theirs; the labels are ours."""
    rng = random.Random(8)
    for number in range(2 * len(ROUTES)):  # each route's first refusal is a series, once
        ask_strangely(server, rng, number)
    # A name with a slash is one that the hub might have: it is refused in another way.
    for route in ROUTES:
        for name in ("org/nobody", "nobody", "a b", "/no/such/path", "../x", "org/x@v1"):
            server.client.post(route, json=body(name, route))
    # CPU use is told from the second scrape on.
    eventually(lambda: any(name == "flexserv_cpu_utilization_ratio" for name, _ in series(server)), 20)
    before = series(server)
    for number in range(STRANGERS):
        ask_strangely(server, rng, number)
    assert series(server) - before == set()


def test_a_scrape_neither_waits_for_a_busy_model_nor_holds_up_others(
    server: RunningServer, models: Path
) -> None:
    llama = str(models / "tiny-random-llama")
    asked = {"model": llama, "prompt": "x", "max_tokens": 1500, "stream": True}
    begun, done = threading.Event(), threading.Event()

    def stream() -> None:
        with server.client.stream("POST", "/v1/completions", json=asked) as answer:
            for _ in answer.iter_lines():
                begun.set()
                if done.is_set():
                    return

    reader = threading.Thread(target=stream)
    reader.start()
    try:
        assert begun.wait(60)
        for _ in range(20):
            started = time.monotonic()
            server.client.get("/metrics").raise_for_status()
            assert time.monotonic() - started < 20
    finally:
        done.set()
        reader.join(60)
    eventually(lambda: "flexserv_event_loop_lag_seconds" in server.client.get("/metrics").text, 20)
