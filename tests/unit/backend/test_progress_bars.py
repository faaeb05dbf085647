"""The bars that report progress: tqdm gives each class of them a thread that watches it, for ever."""

import threading

from hf_transformers_backend.hub import _bar_for
from hf_transformers_backend.upstream.progress import progress_of_weights
from transformers.utils import logging as transformers_logging


def test_reporting_the_progress_of_a_load_starts_no_thread() -> None:
    reports: list[tuple[int, int | None]] = []

    def progress(done: int, total: int | None) -> None:
        reports.append((done, total))

    before = set(threading.enumerate())
    for _ in range(2):
        download = _bar_for(progress)(total=10, unit="B", desc="Reconstructing")
        download.update(4)
        download.close()
        with progress_of_weights(progress):
            for _ in transformers_logging.tqdm(range(3), desc="Loading weights"):
                pass
    assert (4, 10) in reports and (3, 3) in reports
    assert set(threading.enumerate()) == before
