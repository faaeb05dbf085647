"""How many requests are in flight, per inference route, and with those that wait for a load.

A pure-ASGI middleware, so a stream counts to its last byte; the outermost layer of the app. The routes are a
closed set, and so are the labels made from them.
"""

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

INFERENCE_ROUTES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/audio/transcriptions",
)
LOADING_ROUTES = ("/load_model", "/v1/flexserv/models/load")
"""They may wait for a load: no inference, but the server's stop waits for them too."""


class ActivityTracker:
    """Counts requests in flight. Thread-safe: the event loop counts, other threads read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = dict.fromkeys(INFERENCE_ROUTES + LOADING_ROUTES, 0)

    @property
    def active(self) -> int:
        """Requests in flight on all inference routes."""
        return sum(self.by_route().values())

    @property
    def unfinished(self) -> int:
        """Requests that a stop of the server waits for: those, and who waits for a load."""
        with self._lock:
            return sum(self._in_flight.values())

    def by_route(self) -> dict[str, int]:
        """Requests in flight for each of INFERENCE_ROUTES, zeros included."""
        with self._lock:
            return {route: self._in_flight[route] for route in INFERENCE_ROUTES}

    def enter(self, route: str) -> None:
        with self._lock:
            self._in_flight[route] += 1

    def leave(self, route: str) -> None:
        with self._lock:
            self._in_flight[route] -= 1


class ActivityMiddleware:
    """Counts a request until the last byte of its answer, or until the app gives up on it."""

    def __init__(self, app: App, tracker: ActivityTracker) -> None:
        self._app = app
        self._tracker = tracker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = counted_route(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        counted = True
        self._tracker.enter(route)

        def leave() -> None:
            nonlocal counted
            if counted:
                counted = False
                self._tracker.leave(route)

        async def send_counted(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                leave()  # background tasks of the response run after this

        try:
            await self._app(scope, receive, send_counted)
        finally:
            leave()


def counted_route(scope: Scope) -> str | None:
    """Which of INFERENCE_ROUTES or LOADING_ROUTES a request is for, or None."""
    if scope["type"] != "http" or scope.get("method") != "POST":
        return None
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path if path in INFERENCE_ROUTES + LOADING_ROUTES else None
