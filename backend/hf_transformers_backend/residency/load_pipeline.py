"""The threads that load: a few downloads side by side, then one model after the other into memory."""

import logging
import queue
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hf_transformers_backend.errors import FlexServError, ServerFault
from hf_transformers_backend.loader import LoadAborted, Loader, Servable
from hf_transformers_backend.residency.load_job import LoadJob
from hf_transformers_backend.residency.markers import LoadMarkers
from hf_transformers_backend.residency.reclaim import free, release_caches
from hf_transformers_backend.residency.resident import Resident

logger = logging.getLogger(__name__)

DOWNLOADS_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class PipelineEvents:
    """What residency does at the turns of a load. `land` returns a model that nobody wants any more."""

    admit: Callable[[LoadJob, int | None], None]
    land: Callable[[LoadJob, Servable], Resident | None]
    fail: Callable[[LoadJob, FlexServError], None]
    aborted: Callable[[LoadJob], None]


class LoadPipeline:
    """Owns its threads from `start` to `stop`. Waiting loads go by priority, then in the order of arrival."""

    def __init__(self, loader: Loader, markers: LoadMarkers, events: PipelineEvents) -> None:
        self._loader = loader
        self._markers = markers
        self._events = events
        self._downloads = ThreadPoolExecutor(DOWNLOADS_AT_ONCE, thread_name_prefix="flexserv-download")
        self._queue: queue.PriorityQueue[tuple[float, int, LoadJob | None]] = queue.PriorityQueue()
        self._thread = threading.Thread(target=self._run, name="flexserv-load", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: LoadJob) -> None:
        self._downloads.submit(self._fetch, job)

    def stop(self, timeout: float) -> bool:
        """Let the aborted loads end; false if one does not within `timeout` seconds."""
        self._downloads.shutdown(wait=False, cancel_futures=True)
        self._queue.put((float("-inf"), -1, None))
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _fetch(self, job: LoadJob) -> None:
        try:
            job.check()
            job.source = self._loader.fetch(job.identity, job.settings, job.report)
            job.enter("queued")
        except BaseException as error:
            self._settle(job, error)
        else:
            self._queue.put((-job.live.priority, job.sequence, job))

    def _run(self) -> None:
        while (job := self._queue.get()[2]) is not None:
            try:
                self._load(job)
            except Exception:
                # Without this thread nothing would ever be loaded again: log, and go on.
                logger.exception("the load of %s ended badly", job.identity)
            del job

    def _load(self, job: LoadJob) -> None:
        executor = ThreadPoolExecutor(1, thread_name_prefix="flexserv-model")
        unwanted: Resident | None = None
        try:
            job.check()
            assert job.source is not None
            self._events.admit(job, self._loader.needed_bytes(job.identity, job.source, job.settings))
            self._markers.set(job.identity)
            job.enter("weights")
            # On the thread that will generate: OpenMP keeps a team of threads per caller, and two teams on
            # the same cores halve the speed.
            unwanted = self._events.land(
                job,
                executor.submit(
                    self._loader.load, job.identity, job.source, job.settings, executor, job.report
                ).result(),
            )
        except BaseException as error:
            executor.shutdown(wait=False, cancel_futures=True)
            self._settle(job, error)
            del error
            release_caches()
        finally:
            self._markers.clear(job.identity)
        if unwanted is not None:
            free(unwanted.take_servable)
            self._events.aborted(job)

    def _settle(self, job: LoadJob, error: BaseException) -> None:
        if isinstance(error, LoadAborted) or job.aborted:
            self._events.aborted(job)
        elif isinstance(error, FlexServError):
            self._events.fail(job, error)
        else:
            logger.error("loading %s failed:\n%s", job.identity, "".join(traceback.format_exception(error)))
            self._events.fail(
                job,
                ServerFault(f"loading {job.identity} failed; the server's log says why", code="load_failed"),
            )
        # A traceback keeps frames alive, and those the weights that were loaded so far.
        traceback.clear_frames(error.__traceback__)
