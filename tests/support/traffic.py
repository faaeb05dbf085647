"""A client in a pod: requests without a pause through the Service, as other pods of the cluster send them."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube import Kube

from tests.support.eventually import eventually

NAME = "traffic"
# Every request has a connection of its own, so that the Service chooses a pod each time. What was answered is
# counted by its answer, apart from connections that brought none: those any client may try again.
_CLIENT = """
import collections, http.client, json, os, signal, threading, time

requests, host, port = json.loads(os.environ["REQUESTS"]), os.environ["FLEXSERV_SERVICE_HOST"], 80
stop, lock = threading.Event(), threading.Lock()
counted = collections.Counter()
signal.signal(signal.SIGTERM, lambda *_: stop.set())


def count(what):
    with lock:
        counted[what] += 1
        print(json.dumps(counted), flush=True)


def ask(path, body):
    connection = http.client.HTTPConnection(host, port, timeout=100)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read().decode(errors="replace")
        return "answered" if reply.status == 200 else f"{reply.status} {text[:300]}"
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {type(error).__name__}"
    finally:
        connection.close()


def repeat(path, body):
    while not stop.is_set():
        outcome = ask(path, body)
        count(outcome)
        stop.wait(0.3 if outcome == "answered" else 1)


threads = [threading.Thread(target=repeat, args=request) for request in requests]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@dataclass(frozen=True)
class Tally:
    """How many requests ended how."""

    counted: Counter[str]

    @property
    def answered(self) -> int:
        return self.counted["answered"]

    @property
    def refused(self) -> dict[str, int]:
        """Answers other than 200, by status and text."""
        others = self.counted.keys() - {"answered"} - self.turned_away.keys()
        return {what: self.counted[what] for what in others}

    @property
    def turned_away(self) -> dict[str, int]:
        """What a client meets that reaches a pod which is on its way out: no answer, or its word for it."""
        return {
            what: times
            for what, times in self.counted.items()
            if what.startswith("no answer") or '"draining"' in what
        }


class Traffic:
    """The running client."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def tally(self) -> Tally:
        """What was counted so far."""
        lines = self._kube.kubectl("logs", NAME, "--tail=1").splitlines()
        return Tally(Counter(json.loads(lines[-1])) if lines else Counter())

    def await_more(self, answers: int, timeout: float) -> Tally:
        """Wait until that many more requests were answered."""
        before = self.tally().answered
        return eventually(
            lambda: tally if (tally := self.tally()).answered >= before + answers else None,
            timeout=timeout,
            interval=0.5,
        )


@contextlib.contextmanager
def traffic(kube: Kube, image: str, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Traffic]:
    """Send each of the requests (path, body) over and over while the block runs, side by side."""
    kube.kubectl("delete", "pod", NAME, "--ignore-not-found", "--grace-period=1", "--timeout=60s")
    kube.apply(json.dumps(_pod(image, requests)))
    try:
        client = Traffic(kube)
        eventually(lambda: client.tally().answered >= len(requests), timeout=90, interval=0.5)
        yield client
    finally:
        kube.kubectl("delete", "pod", NAME, "--ignore-not-found", "--grace-period=1", "--timeout=60s")


def _pod(image: str, requests: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", _CLIENT],
        "env": [{"name": "REQUESTS", "value": json.dumps(requests)}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"limits": {"memory": "128Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
        },
    }
