"""Uvicorn with an end that suits Kubernetes: not ready, still listening, drain, unload, exit code 0."""

import asyncio
import logging
import os
import socket
import threading
from types import FrameType

import uvicorn

from hf_transformers_backend.backend import Backend

logger = logging.getLogger(__name__)

CUT_SECONDS = 1
"""How long connections get to close once draining is over."""
GRACE_SECONDS = 10.0
"""What unloading may take after the drain limit, before the process is ended hard."""


class DrainingServer(uvicorn.Server):
    """The first SIGTERM or SIGINT drains for up to --shutdown-timeout; a second one exits at once."""

    def __init__(self, config: uvicorn.Config, backend: Backend) -> None:
        config.timeout_graceful_shutdown = CUT_SECONDS
        super().__init__(config)
        self._backend = backend
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drain: asyncio.Task[None] | None = None
        self._ended = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            logger.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not noted as captured: uvicorn would raise it again at the end, and the exit code would be that of a
        # kill.
        if self._backend.lifecycle.is_draining:
            logger.warning("second signal: exiting at once")
            self._exit_hard()
        self._backend.lifecycle.note_drain()
        threading.Thread(target=self._watch_the_limit, name="flexserv-exit", daemon=True).start()
        if self._loop is None:
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._begin_drain)

    def ended(self) -> None:
        """The process is about to leave by itself."""
        self._ended.set()

    def _begin_drain(self) -> None:
        if self._drain is None:
            self._drain = asyncio.create_task(self._drain_requests())

    async def _drain_requests(self) -> None:
        backend = self._backend
        limit = backend.settings.shutdown_timeout
        backend.lifecycle.drain()
        logger.info("draining: up to %.0f s for %d running requests", limit, backend.activity.unfinished)
        assert self._loop is not None
        deadline = self._loop.time() + limit
        while self._is_busy() and self._loop.time() < deadline:
            await asyncio.sleep(0.05)
        if self._is_busy():
            logger.warning("cutting %d requests that still run", backend.activity.unfinished)
        self.should_exit = True

    def _is_busy(self) -> bool:
        if self._backend.activity.unfinished:
            return True
        now = self._backend.residency.snapshot()
        return any(model.active_requests for model in (*now.models, *now.unloading))

    def _watch_the_limit(self) -> None:
        limit = self._backend.settings.shutdown_timeout + GRACE_SECONDS
        if not self._ended.wait(limit):
            logger.error("still not done %.0f s after the signal: exiting hard", limit)
            self._exit_hard()

    def _exit_hard(self) -> None:
        # A load that is cut on purpose is no crash.
        self._backend.residency.forget_markers()
        logging.shutdown()
        os._exit(1)
