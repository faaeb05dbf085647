"""Generations that share their steps with others: the model's batch instead of a turn on its thread."""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from hf_transformers_backend.errors import BadRequest, Unavailable
from hf_transformers_backend.generation.batchable import unbatchable
from hf_transformers_backend.generation.stream import TokenStreamer
from hf_transformers_backend.generation.turns import Work
from hf_transformers_backend.request_id import current_request_id, request_id_of
from hf_transformers_backend.upstream.batch_pool import PoolLimits
from hf_transformers_backend.upstream.batching import BatchOutput, BatchWorker, RowSampling, can_batch
from hf_transformers_backend.upstream.served_model import ServedModel

_log = logging.getLogger(__name__)


class Batching:
    """A model's batch worker: started with its first request, and anew when it has died."""

    def __init__(self, served: ServedModel, limits: PoolLimits) -> None:
        self._served = served
        self._limits = limits
        self._starting: asyncio.Future[BatchWorker | None] | None = None

    async def worker(self) -> BatchWorker | None:
        """The model's worker; None for a model whose requests have to be served one after another. Raises
        Unavailable when one dies as soon as it was started.
        """
        for _ in range(2):
            starting = self._starting
            if starting is None:
                starting = self._starting = self._on_thread(self._start)
            # The start goes on for others when this request's client leaves.
            worker = await asyncio.shield(starting)
            if worker is None or worker.failure is None:
                return worker
            if self._starting is starting:
                self._starting = self._on_thread(partial(self._restart, worker))
        raise batch_failed()

    def _on_thread(self, work: Callable[[], BatchWorker | None]) -> asyncio.Future[BatchWorker | None]:
        return asyncio.get_running_loop().run_in_executor(self._served.executor, work)

    def _restart(self, dead: BatchWorker) -> BatchWorker | None:
        _log.warning("the batch of %s has died and is started anew: %s", self._served.key, dead.failure)
        self._end(dead)
        return self._start()

    def _start(self) -> BatchWorker | None:
        served = self._served
        dropped = unbatchable(served.model.generation_config)
        if not can_batch(served) or dropped is not None:
            reason = f"its generation config sets {dropped}" if dropped else "it is no plain text model"
            _log.warning(
                "%s is served without continuous batching, one request after another: %s", served.key, reason
            )
            return None
        try:
            worker = BatchWorker(served.model, self._limits)
        except Exception:
            _log.warning(
                "%s cannot be batched and is served one request after another", served.key, exc_info=True
            )
            return None
        served.beside[worker.pool_device] = worker.pool_bytes
        served.resources.callback(self._end, worker)
        return worker

    def _end(self, worker: BatchWorker) -> None:
        worker.stop()
        self._served.beside.pop(worker.pool_device, None)


def room_in_pool(worker: BatchWorker, prompt_tokens: int, where: str) -> int:
    """Tokens that the pool leaves after the prompt, which the field `where` brought, at least 1; raises
    BadRequest when there are none.
    """
    room = worker.capacity - prompt_tokens
    if room < 1:
        raise BadRequest(
            f"the pool for continuous batching holds {worker.capacity} tokens, but the prompt has "
            f"{prompt_tokens} tokens, which leaves no room for an answer",
            code="context_length_exceeded",
            param=where,
            context_tokens=worker.capacity,
            prompt_tokens=prompt_tokens,
        )
    return room


def batch_failed() -> Unavailable:
    """What the requests in a batch get when its worker dies."""
    return Unavailable(
        "continuous batching of this model has failed; the server's log says why. The next request starts it "
        "anew",
        code="batching_failed",
        retry_after=1,
    )


class BatchedWork(Work):
    """One request in the batch. Its text is made on the model's thread, which has nothing else to do."""

    def __init__(
        self,
        worker: BatchWorker,
        request_id: str,
        executor: ThreadPoolExecutor,
        streamer: TokenStreamer,
        *,
        begin: Callable[[], None],
        finish: Callable[[], None],
        fail: Callable[[BaseException], None],
        over: Callable[[], None],
    ) -> None:
        """`begin` is called with the first output; `finish` sends the end of the answer, `fail` an error
        instead; `over` is called once in any case, before either.
        """
        super().__init__(streamer.cancellation, Future())
        self._worker = worker
        self._request_id = request_id
        self._executor = executor
        self._begin = begin
        self._streamer = streamer
        self._finish = finish
        self._fail = fail
        self._account = over
        self._lock = threading.Lock()
        self._ended = False
        self._id_in_log = current_request_id()

    def join(
        self, ids: Sequence[int], *, max_new_tokens: int, ends: Collection[int], sampling: RowSampling
    ) -> None:
        """Enter the batch with the next step."""
        self._worker.add(
            self._request_id,
            ids,
            max_new_tokens=max_new_tokens,
            ends=ends,
            sampling=sampling,
            deliver=self._deliver,
        )

    def _deliver(self, output: BatchOutput) -> None:
        """From the worker's thread."""
        if output.error is not None:
            with request_id_of(self._id_in_log):
                _log.error("a request in the batch failed: %s", output.error)
            error = batch_failed()
            error.__cause__ = RuntimeError(output.error)
            self._failed(error)
            return
        try:
            self._executor.submit(self._take, output)
        except RuntimeError:  # the model is gone
            self._failed(batch_failed())

    def cancel(self) -> None:
        """Leave the batch with the step that runs."""
        if self._end():
            self._worker.cancel(self._request_id)
        super().cancel()

    def _take(self, output: BatchOutput) -> None:
        if self._ended:
            return
        try:
            self._begin()
            self._streamer.begin()
            for token in output.tokens:
                self._streamer.take(token)
            if not (output.finished or self._streamer.finished) or not self._end():
                return
            if not output.finished:
                self._worker.cancel(self._request_id)
            self._finish()
            self._resolve()
        except BaseException as error:  # the top of the thread's work: the reader gets it
            self._worker.cancel(self._request_id)
            if self._end():
                self._resolve()
            self._fail(error)

    def _failed(self, error: BaseException) -> None:
        if self._end():
            self._fail(error)
            self._resolve()

    def _end(self) -> bool:
        """Whether this call is the one that ends the work."""
        with self._lock:
            if self._ended:
                return False
            self._ended = True
        self._account()
        return True

    def _resolve(self) -> None:
        if self._job.set_running_or_notify_cancel():
            self._job.set_result(None)
