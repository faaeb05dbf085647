"""Progress lines with elapsed time, on standard error."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

_BEGIN = time.monotonic()


def say(text: str) -> None:
    """Print one line, stamped with the seconds since this program began."""
    print(f"[{time.monotonic() - _BEGIN:6.1f} s] {text}", file=sys.stderr, flush=True)


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Announce a stage, and say how long it took when it is through."""
    say(f"{text} ...")
    begin = time.monotonic()
    yield
    say(f"{text}: done in {time.monotonic() - begin:.1f} s")
