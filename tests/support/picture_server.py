"""An HTTP or HTTPS server on 127.0.0.1 that serves pictures well and badly."""

import contextlib
import io
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from PIL import Image


def picture(color: str = "red", size: tuple[int, int] = (30, 30), form: str = "PNG") -> bytes:
    """A plain picture."""
    buffer = io.BytesIO()
    Image.new("RGB", size, color).save(buffer, form)
    return buffer.getvalue()


class PictureServer(ThreadingHTTPServer):
    """`seen` has the path and Host header of every request; `let_go` frees those that hang at /hang."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, str]] = []
        self.hanging = threading.Event()
        self.let_go = threading.Event()
        self.gone = threading.Event()
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {
            "/red.png": (200, {"Content-Type": "image/png"}, picture()),
            "/blue.jpg": (200, {"Content-Type": "image/jpeg; q=1"}, picture("blue", form="JPEG")),
            "/untyped": (200, {}, picture()),
            "/page": (200, {"Content-Type": "text/html; charset=utf-8"}, b"<p>hi</p>"),
            "/broken.png": (200, {"Content-Type": "image/png"}, picture()[:50]),
            "/missing.png": (404, {"Content-Type": "image/png"}, b""),
        }

    def redirect(self, path: str, target: str) -> None:
        """GET `path` leads to `target`."""
        self.pages[path] = (302, {"Location": target}, b"")

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    server: PictureServer

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Host"]))
        if self.path == "/hang":
            self._hang()
        elif self.path == "/endless":
            self._endless()
        else:
            status, headers, body = self.server.pages.get(self.path, (404, {}, b""))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def _hang(self) -> None:
        """Say nothing until the client goes or the test lets go."""
        self.server.hanging.set()
        self.connection.settimeout(60)
        with contextlib.suppress(OSError):
            if self.connection.recv(1) == b"":
                self.server.gone.set()
        self.close_connection = True

    def _endless(self) -> None:
        """Bytes without a declared length until the client has had enough."""
        self.send_response(200)
        self.send_header("Content-Type", "image/png")
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.let_go.is_set():
                self.wfile.write(b"\x00" * 65536)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def picture_server(tls: ssl.SSLContext | None = None) -> Iterator[PictureServer]:
    """A running server; with `tls` it speaks HTTPS."""
    server = PictureServer()
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.let_go.set()
        server.shutdown()
        server.server_close()
        thread.join(20)
