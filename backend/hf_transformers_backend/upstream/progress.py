"""Transformers' progress bars: off stderr, into the progress of a load.

`from_pretrained` draws "Loading weights" itself and passes no bar class to it (5.18 to 5.24); the
process-wide hook is the only way in. Until `tqdm_class` covers that bar too.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from huggingface_hub.utils.tqdm import disable_progress_bars
from transformers.cli.serving.utils import make_progress_tqdm_class
from transformers.utils import logging as transformers_logging

from hf_transformers_backend.loader import Progress
from hf_transformers_backend.log_lines import adopt_loggers_of_libraries

_hook_lock = threading.Lock()


def use_our_logging() -> None:
    """Draw no bars, and let the log of transformers go where ours goes."""
    transformers_logging.disable_progress_bar()
    disable_progress_bars()
    adopt_loggers_of_libraries()


@contextmanager
def progress_of_weights(progress: Progress) -> Iterator[None]:
    """Report the weights loaded inside to `progress`, whose exceptions end the load. One at a time."""

    def report(event: Mapping[str, Any]) -> None:
        counted = event.get("progress")
        if counted is not None:
            progress(int(counted["current"]), counted["total"])

    bar = make_progress_tqdm_class(report, "")
    bar.monitor_interval = 0  # else each class of bars, here each load, gets a thread that never ends
    with _hook_lock:
        before = transformers_logging.set_tqdm_hook(lambda _factory, args, kwargs: bar(*args, **kwargs))
        try:
            yield
        finally:
            transformers_logging.set_tqdm_hook(before)
