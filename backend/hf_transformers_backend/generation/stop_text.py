"""Cut generated text at the first stop text, holding back what may still become one."""

from collections.abc import Sequence


class StopText:
    """Feed text in pieces; each call returns what may be shown.

    `matched` turns true at the first stop text.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched = False

    def feed(self, text: str) -> str:
        """The text that is certain to come before any stop text. After a match everything is dropped."""
        if self.matched:
            return ""
        if not self._stops:
            return text
        pending = self._held + text
        found = [at for at in (pending.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.matched = True
            self._held = ""
            return pending[: min(found)]
        keep = max(_overlap(pending, stop) for stop in self._stops)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep]

    def flush(self) -> str:
        """What was held back, once no more text can come."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of `text` that is a proper beginning of `stop`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
