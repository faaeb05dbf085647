"""The frame of every program here: readable errors, one exit status, an orderly Ctrl-C."""

import sys
from collections.abc import Callable

from lab.errors import LabError


def finish(main: Callable[[], int]) -> None:
    """Run `main` and leave with its status; 1 for an error that was explained, 130 for Ctrl-C."""
    try:
        sys.exit(main())
    except LabError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
