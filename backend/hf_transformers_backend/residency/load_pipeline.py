"""The threads that load: a few downloads side by side, then one model after the other into memory."""

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from hf_transformers_backend.errors import FlexServError, ServerFault
from hf_transformers_backend.loader import LoadAborted, Loader, OutOfMemory, Servable
from hf_transformers_backend.request_id import carrying, request_id_of
from hf_transformers_backend.residency.load_job import LoadJob
from hf_transformers_backend.residency.markers import LoadMarkers
from hf_transformers_backend.residency.reclaim import forget_frames, free, release_caches
from hf_transformers_backend.residency.resident import Resident

logger = logging.getLogger(__name__)

DOWNLOADS_AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class PipelineEvents:
    """What residency does at the turns of a load; sizes are those of the weights.

    `foresee` comes before the download. `admit` is false for a load that will be enqueued again. `land`
    returns a model that nobody wants now. `gone` says that the memory of a load that did not land is back.
    """

    foresee: Callable[[LoadJob, int | None], None]
    admit: Callable[[LoadJob, int | None], bool]
    make_room: Callable[[LoadJob, int | None], None]
    ran_out: Callable[[LoadJob, int | None], FlexServError]
    land: Callable[[LoadJob, Servable], Resident | None]
    fail: Callable[[LoadJob, FlexServError], None]
    aborted: Callable[[LoadJob], None]
    gone: Callable[[LoadJob], None]
    failed_with: Callable[[BaseException], None]


class LoadPipeline:
    """Owns its threads from `start` to `stop`. Waiting loads go by priority, then in the order of arrival.

    `begin_with` comes before everything else: the gate brings loads back to the queue.
    """

    def __init__(self, loader: Loader, markers: LoadMarkers) -> None:
        self._loader = loader
        self._markers = markers
        self._events: PipelineEvents
        self._downloads = ThreadPoolExecutor(DOWNLOADS_AT_ONCE, thread_name_prefix="flexserv-download")
        self._queue: queue.PriorityQueue[tuple[float, int, LoadJob | None]] = queue.PriorityQueue()
        self._thread = threading.Thread(target=self._run, name="flexserv-load", daemon=True)

    def begin_with(self, events: PipelineEvents) -> None:
        self._events = events

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: LoadJob) -> None:
        self._downloads.submit(carrying(lambda: self._fetch(job)))

    def enqueue(self, job: LoadJob) -> None:
        """Its files are here: it may come into memory."""
        self._queue.put((-job.live.priority, job.sequence, job))

    def stop(self, timeout: float) -> bool:
        """Let the aborted loads end; false if one does not within `timeout` seconds."""
        self._downloads.shutdown(wait=False, cancel_futures=True)
        self._queue.put((float("-inf"), -1, None))
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _fetch(self, job: LoadJob) -> None:
        try:
            job.check()
            self._events.foresee(job, self._loader.expected_bytes(job.identity, job.settings))
            job.source = self._loader.fetch(job.identity, job.settings, job.report)
            job.enter("queued")
        except BaseException as error:
            self._settle(job, error)
        else:
            self.enqueue(job)

    def _run(self) -> None:
        while (job := self._queue.get()[2]) is not None:
            try:
                with request_id_of(job.request_id):
                    self._load(job)
            except Exception:
                # Without this thread nothing would ever be loaded again: log, and go on.
                logger.exception("the load of %s ended badly", job.identity)
            del job

    def _load(self, job: LoadJob) -> None:
        unwanted: Resident | None = None
        try:
            job.check()
            assert job.source is not None
            size = self._loader.needed_bytes(job.identity, job.source, job.settings)
            if not self._events.admit(job, size):
                return
            unwanted = self._events.land(job, self._marked(job, size))
        except BaseException as error:
            self._settle(job, error)
            del error
            release_caches()
            self._events.gone(job)
        if unwanted is not None:
            free(unwanted.take_servable)
            self._events.gone(job)
            self._events.aborted(job)

    def _marked(self, job: LoadJob, size: int | None) -> Servable:
        """Load, with a marker that is gone before anybody is told how it went: what ends the process after
        that is no fault of the model.
        """
        self._markers.set(job.identity)
        try:
            job.enter("weights")
            return self._into_memory(job, size)
        finally:
            self._markers.clear(job.identity)

    def _into_memory(self, job: LoadJob, size: int | None) -> Servable:
        """Load; when memory runs out, clean up, make room and try once more."""
        try:
            return self._attempt(job)
        except OutOfMemory as error:
            logger.warning("memory ran out while loading %s; making room for one more try", job.identity)
            forget_frames(error)
        release_caches()
        self._events.make_room(job, size)
        try:
            return self._attempt(job)
        except OutOfMemory as error:
            forget_frames(error)
        release_caches()
        raise self._events.ran_out(job, size)

    def _attempt(self, job: LoadJob) -> Servable:
        """On the thread that will generate: OpenMP keeps a team of threads per caller, and two teams on the
        same cores halve the speed.
        """
        job.check()
        assert job.source is not None
        executor = ThreadPoolExecutor(1, thread_name_prefix="flexserv-model")
        load = partial(self._loader.load, job.identity, job.source, job.settings, executor, job.report)
        try:
            return executor.submit(carrying(load)).result()
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise

    def _settle(self, job: LoadJob, error: BaseException) -> None:
        self._events.failed_with(error)
        if isinstance(error, LoadAborted) or job.aborted:
            self._events.aborted(job)
        elif isinstance(error, FlexServError):
            self._events.fail(job, error)
        else:
            logger.error("loading %s failed", job.identity, exc_info=error)
            self._events.fail(
                job,
                ServerFault(f"loading {job.identity} failed; the server's log says why", code="load_failed"),
            )
        forget_frames(error)
