"""The log: every event is one line on stderr, as text or as a JSON object, whoever wrote it.

Ours, uvicorn's, transformers', Python's warnings and, in JSON, even what a library prints. In text a
traceback follows its line, indented.
"""

import io
import json
import logging
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, TextIO

from hf_transformers_backend.request_id import current_request_id
from hf_transformers_backend.settings.kinds import LogFormat, LogLevel

PACKAGE = "hf_transformers_backend"
FIELDS = ("model", "reason", "active_requests", "status", "seconds")
"""What an event may say beside its message, by `extra`; other attributes of a record are not shown."""
QUIET = ("httpx", "httpx2", "httpcore", "urllib3", "filelock", "asyncio", "PIL")
"""Only their warnings are shown."""
OF_CLIENTS = ("uvicorn.error", "python_multipart.multipart")
"""What they warn of is what a client has sent, and whoever can send must not fill the log with warnings."""


def configure_logging(level: LogLevel, form: LogFormat) -> None:
    """Once, before the heavy imports. `level` is for what is ours; libraries never say less than `info`: what
    they tell at `debug` may hold a client's text.
    """
    own = logging.getLevelNamesMapping()[level.upper()]
    others = max(logging.INFO, own)
    handler = _Handler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(others)
    logging.getLogger(PACKAGE).setLevel(own)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, others))
    for name in OF_CLIENTS:
        logging.getLogger(name).addFilter(_no_warning)
    warnings.formatwarning = _one_line_warning
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda given: _log_uncaught(
        given.exc_type, given.exc_value or given.exc_type(), given.exc_traceback
    )
    sys.unraisablehook = lambda given: _log_uncaught(
        given.exc_type, given.exc_value or given.exc_type(), given.exc_traceback
    )
    if form == "json":
        sys.stdout = _PrintedLines("stdout", logging.INFO, sys.stdout)
        sys.stderr = _PrintedLines("stderr", logging.WARNING, sys.stderr)


def adopt_loggers_of_libraries() -> None:
    """Let them write where ours goes: several bring handlers of their own when they are imported."""
    for logger in list(logging.root.manager.loggerDict.values()):
        if not isinstance(logger, logging.Logger):
            continue
        to_console = [handler for handler in logger.handlers if type(handler) is logging.StreamHandler]
        for handler in to_console:
            logger.removeHandler(handler)
        if to_console:
            logger.propagate = True


def last_words(message: str) -> None:
    """Say why the process ends, whatever the level: as it is, or as a JSON line."""
    if isinstance(sys.stderr, _PrintedLines):
        logging.getLogger(PACKAGE).critical("%s", message)
    else:
        print(message, file=sys.stderr)


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO logger [request id]: message`."""

    def format(self, record: logging.LogRecord) -> str:
        request_id = current_request_id()
        context = f" [{request_id}]" if request_id else ""
        line = f"{_time(record)} {record.levelname} {record.name}{context}: {_one_line(record.getMessage())}"
        if trace := _traceback(record):
            line += "\n" + "\n".join(f"    {part}" for part in trace.splitlines())
        return line


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`; within a request `request_id`; `exception`; and FIELDS."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        more = {"request_id": current_request_id()} | {name: getattr(record, name, None) for name in FIELDS}
        more["exception"] = _traceback(record)
        entry |= {name: value for name, value in more.items() if value is not None}
        return json.dumps(entry, ensure_ascii=False, default=str)


class _Handler(logging.StreamHandler[TextIO]):
    """A record that cannot be formatted is a fault of ours, and one line like every other."""

    def handleError(self, record: logging.LogRecord) -> None:
        place = f"{record.pathname}:{record.lineno}"
        fault = logging.LogRecord(
            record.name, logging.ERROR, record.pathname, record.lineno,
            "a log message cannot be formatted (%s): %s", (place, sys.exception()), None,
        )  # fmt: skip
        try:
            self.stream.write(self.format(fault) + self.terminator)
        except (OSError, ValueError):
            return  # nobody reads the log any more


class _PrintedLines(io.TextIOBase):
    """Stands in for a stream of the process: what is printed becomes records, line by line."""

    def __init__(self, name: str, level: int, original: TextIO) -> None:
        self._logger = logging.getLogger(name)
        self._level = level
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
        for line in lines:
            if line.strip():
                self._logger.log(self._level, "%s", line.rstrip())
        return len(text)


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _one_line(message: str) -> str:
    return (
        message
        if message.isprintable()
        else "".join(
            character if character.isprintable() or character == "\t" else repr(character)[1:-1]
            for character in message.rstrip("\n")
        )
    )


def _no_warning(record: logging.LogRecord) -> bool:
    if record.levelno == logging.WARNING:
        record.levelno, record.levelname = logging.INFO, "INFO"
    return logging.getLogger(record.name).isEnabledFor(record.levelno)


def _traceback(record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[0] is not None:
        return logging.Formatter().formatException(record.exc_info)
    return record.stack_info


def _one_line_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    return f"{category.__name__}: {message} ({filename}:{lineno})"


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    logging.getLogger(PACKAGE).critical("nobody caught this", exc_info=(kind, error, trace))
