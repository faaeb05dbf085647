"""A stand-in for the model hub on loopback: the few endpoints that a download uses, serving real folders.

It can fail as the real one does: refuse, refuse for the rate, break a connection in the middle of a file.
"""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

CHUNK = 10 * 1024 * 1024
"""The piece in which the hub's client reports progress."""


class Hub:
    """`repositories` maps ids to folders. `refusals` maps ids to (status, X-Error-Code).

    A file larger than CHUNK is sent in pieces, each after the first once `gate` is set. `too_many` is how
    often the next requests for a repository get a 429, and `cuts` how often a file (`owner/name/file`) ends
    after its first piece. `served` has the files that were sent, `resumed` those that were asked for from a
    place in the middle. `weights` is what it knows without a look into the files: how many of each type.
    """

    def __init__(self, repositories: dict[str, Path], refusals: dict[str, tuple[int, str]]) -> None:
        self.repositories = repositories
        self.refusals = refusals
        self.gate = threading.Event()
        self.weights: dict[str, dict[str, int]] = {}
        self.served: list[str] = []
        self.resumed: list[str] = []
        self.too_many: dict[str, int] = {}
        self.cuts: dict[str, int] = {}
        hub = self

        class Handler(_Handler):
            owner = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def commit(self, repository: str) -> str:
        return hashlib.sha1(repository.encode()).hexdigest()

    def __enter__(self) -> "Hub":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Nobody listens at `url` any more."""
        self.gate.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""

    def _answer(self, with_body: bool) -> None:
        path = urlsplit(self.path).path
        parts = path.removeprefix("/api/models").strip("/").split("/")
        repository, action, rest = "/".join(parts[:2]), *(parts[2:3] or [""]), parts[3:]
        if self.owner.too_many.get(repository, 0) > 0:
            self.owner.too_many[repository] -= 1
            self._send(429, b"{}", {"Retry-After": "0"})
        elif repository in self.owner.refusals:
            status, code = self.owner.refusals[repository]
            self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code})
        elif repository not in self.owner.repositories:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif not action:
            self._send(200, json.dumps({"id": repository, "sha": self.owner.commit(repository)}).encode())
        elif rest[:1] not in (["main"], [self.owner.commit(repository)]):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif action == "revision":
            self._send(200, json.dumps(self._facts(repository)).encode())
        elif action == "tree":
            self._send(200, json.dumps(_tree(self.owner.repositories[repository])).encode())
        else:
            self._send_file(repository, "/".join(rest[1:]), with_body)

    def _facts(self, repository: str) -> dict[str, Any]:
        facts: dict[str, Any] = {"id": repository, "sha": self.owner.commit(repository)}
        if (weights := self.owner.weights.get(repository)) is not None:
            facts["safetensors"] = {"parameters": weights, "total": sum(weights.values())}
        return facts

    def _send_file(self, repository: str, name: str, with_body: bool) -> None:
        file = self.owner.repositories[repository] / name
        headers = {"ETag": f'"{_oid(file)}"', "X-Repo-Commit": self.owner.commit(repository)}
        size, asked = file.stat().st_size, f"{repository}/{name}"
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self.send_response(206 if start else 200)
        for header, value in {**headers, "Content-Length": str(size - start)}.items():
            self.send_header(header, value)
        self.end_headers()
        if not with_body:
            return
        (self.owner.resumed if start else self.owner.served).append(asked)
        with file.open("rb") as stream:
            stream.seek(start)
            first = True
            while piece := stream.read(CHUNK):
                if not first and (self._is_cut(asked) or not self.owner.gate.wait(30)):
                    self.close_connection = True
                    return
                first = False
                try:
                    self.wfile.write(piece)
                except OSError:  # the client gave up
                    self.close_connection = True
                    return

    def _is_cut(self, file: str) -> bool:
        left = self.owner.cuts.get(file, 0)
        self.owner.cuts[file] = left - 1
        return left > 0

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _tree(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            "type": "file",
            "path": str(file.relative_to(folder)),
            "size": file.stat().st_size,
            "oid": _oid(file),
        }
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]


def _oid(file: Path) -> str:
    return hashlib.sha1(f"{file.name}{file.stat().st_size}".encode()).hexdigest()
