"""The operator's log: one event per line on stderr, as text or as a JSON object.

That holds for kopf's events, Python's warnings and, in JSON, for what a library prints. In text a traceback
follows its line, indented.
"""

import io
import json
import logging
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, Literal, TextIO

QUIET = ("httpx", "httpcore", "aiohttp.access", "asyncio", "kopf.activities", "kopf.objects")
"""Only their warnings are shown."""


def configure_logging(level: str, form: Literal["text", "json"]) -> None:
    """Once, at the start. Libraries never say less than `info`: what they tell at `debug` may hold tokens."""
    own = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.INFO, own))
    logging.getLogger(__package__).setLevel(own)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, own))
    warnings.formatwarning = _one_line_warning
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    if form == "json":
        sys.stdout, sys.stderr = PrintedLines(sys.stdout), PrintedLines(sys.stderr)


def last_words(message: str) -> None:
    """Say why the process ends, whatever the level: as it is, or as a JSON line."""
    if isinstance(sys.stderr, PrintedLines):
        logging.getLogger(__package__).critical("%s", message)
    else:
        print(message, file=sys.stderr)


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO logger: message`."""

    def format(self, record: logging.LogRecord) -> str:
        message = "".join(c if c.isprintable() else repr(c)[1:-1] for c in record.getMessage().rstrip("\n"))
        line = f"{_time(record)} {record.levelname} {record.name}: {message}"
        return line + "".join(f"\n    {part}" for part in (_traceback(record) or "").splitlines())


class JsonLines(logging.Formatter):
    """`time`, `level`, `logger`, `message`, and `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if trace := _traceback(record):
            entry["exception"] = trace
        return json.dumps(entry, ensure_ascii=False)


class PrintedLines(io.TextIOBase):
    """Stands in for a stream of the process: what is printed becomes records, line by line."""

    def __init__(self, original: TextIO) -> None:
        self._original = original
        self._begun = ""
        self._lock = threading.Lock()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._original.fileno()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            logging.getLogger("printed").warning("%s", line.rstrip())
        return len(text)


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _traceback(record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0] is not None:
        return logging.Formatter().formatException(record.exc_info)
    return record.stack_info


def _one_line_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return f"{category.__name__}: {message} ({filename}:{lineno})"


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        logging.getLogger(__package__).critical("nobody caught this", exc_info=(kind, error, trace))
