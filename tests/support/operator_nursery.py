"""Starts operators in a fraction of a second: one process imports the operator and forks it as often as it is
asked to. Each child is a whole operator of its own, with arguments, environment and log.

A child can be made mortal: it kills itself with SIGKILL right after its n-th call to the API server or to a
pod was answered, before anything comes of the answer. (The watches are not counted: they never end.)
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STOP_TIMEOUT_S = 20


class Child:
    """An operator; as much of subprocess.Popen as a test needs."""

    def __init__(self, nursery: "Nursery", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """The exit code (negative for a signal), None while it runs."""
        if self.returncode is None:
            self.returncode = self._nursery.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code; subprocess.TimeoutExpired if it does not end."""
        if self.returncode is None:
            self.returncode = self._nursery.ask({"wait": self.pid, "seconds": timeout})
        if self.returncode is None:
            raise subprocess.TimeoutExpired("flexserv_operator", timeout)
        return self.returncode

    def send_signal(self, sent: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, sent)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The forking process, from this side: one line of JSON per question and answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(
        self, arguments: Sequence[str], env: Mapping[str, str], log: Path, die_after: int | None = None
    ) -> Child:
        """A new operator. With `die_after` it dies after that many answered calls."""
        wanted = {"start": list(arguments), "env": dict(env), "log": str(log), "die_after": die_after}
        return Child(self, self.ask(wanted))

    def ask(self, question: Mapping[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the nursery ended with {self._process.wait(5)}")
        return json.loads(answer)


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery until the end of the block; children that still live then are killed."""
    path = os.pathsep.join(map(str, (ROOT / "operator", ROOT)))
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.operator_nursery"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        yield Nursery(process)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(STOP_TIMEOUT_S)
        process.stdout.close()


# The other side


def _serve() -> None:
    import flexserv_operator.__main__  # noqa: F401

    children: set[int] = set()
    for line in sys.stdin:
        question = json.loads(line)
        if "start" in question:
            answer = _fork(question)
            children.add(answer)
        else:
            answer = _reap(question.get("poll") or question["wait"], question.get("seconds", 0.0))
            if answer is not None:
                children.discard(question.get("poll") or question["wait"])
        print(json.dumps(answer), flush=True)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _reap(pid: int, seconds: float) -> int | None:
    import time

    deadline = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.01)


def _fork(question: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with open(question["log"], "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(question["env"])
        if question["die_after"]:
            _make_mortal(question["die_after"])
        from flexserv_operator.__main__ import main

        code = main(question["start"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _make_mortal(calls: int) -> None:
    import httpx

    answered = 0
    exchange = httpx.AsyncHTTPTransport.handle_async_request

    async def counted(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        nonlocal answered
        response = await exchange(self, request)
        answered += 1
        if answered == calls:
            print(f"dying after call {calls}: {request.method} {request.url}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return response

    httpx.AsyncHTTPTransport.handle_async_request = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    _serve()
