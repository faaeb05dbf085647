"""Requests that are refused before any model is asked for count in the metrics like all others."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from hf_transformers_backend.errors import FlexServError
from hf_transformers_backend.request_metrics import RequestMetrics


@contextmanager
def refusals_counted(metrics: RequestMetrics, route: str) -> Iterator[None]:
    """Around reading and understanding a body."""
    arrived = time.monotonic()
    try:
        yield
    except FlexServError as error:
        metrics.observe_request(route, error.status, None, False, time.monotonic() - arrived)
        raise
