"""One client's connection, which must not stay for ever without a request."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 60.0
"""How long a request's head may take, from the connection's begin or the head's first byte."""


class Connection(H11Protocol):
    """Uvicorn's, which itself limits only the time between an answer and the first byte after it."""

    head_seconds = HEAD_SECONDS
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._limit_head()

    def data_received(self, data: bytes) -> None:
        """Wait on while it is less than a head."""
        super().data_received(data)
        self._limit_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._forget_head()
        super().connection_lost(exc)

    def _limit_head(self) -> None:
        # The cycle is that of the last head that came whole.
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget_head()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._end_without_head)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_without_head(self) -> None:
        self._head_timer = None
        # A pipelined request begins when the one before is answered, without new data.
        if self.cycle is None or self.cycle.response_complete:
            self.timeout_keep_alive_handler()
