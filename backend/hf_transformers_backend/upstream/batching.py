"""Continuous batching of one model with upstream's `ContinuousBatchingManager`, one manager per model.

Replaced, in transformers 5.24:
* `CBGenerateManager` and `GenerationState`: one manager for all models, which takes the sampling of its first
  request for all later ones, decodes on the event loop, and is not freed with its model. Until upstream keeps
  one per model and applies each request's own generation config.
* `OutputRouter` for asyncio: a closed event loop would end the worker's thread. Until it takes plain
  callbacks.
* Greedy next to sampled requests: a manager does only one of them. `_GreedyRows` leaves a greedy request the
  one most likely token. Until `do_sample` is per request.
* A request that the KV pool cannot hold ends the worker: `capacity` lets the caller refuse it before.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from transformers import GenerationConfig
from transformers.generation.continuous_batching.cb_logits_processors import (
    ContinuousBatchingLogitsProcessor,
    ContinuousBatchingLogitsProcessorList,
)
from transformers.generation.continuous_batching.continuous_api import OutputRouter
from transformers.generation.continuous_batching.model_runner import infer_max_single_request_tokens

from hf_transformers_backend.upstream.batch_pool import PoolLimits, pool_config
from hf_transformers_backend.upstream.served_model import Modality, ServedModel

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_log = logging.getLogger(__name__)

# Upstream's logger writes lines of its own form to stderr, below every level.
_upstream_log = logging.getLogger("ContinuousBatchingLogger")

STOP_SECONDS = 10.0
"""How long an unload waits for the step that runs; what is longer ends by itself and is freed then."""

_NO_TOP_K = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RowSampling:
    """How the tokens of one request in the batch are chosen: all that upstream applies per request."""

    greedy: bool = True
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """What a step brought for one request: new tokens, the last ones if `finished`, or why it failed."""

    tokens: Sequence[int] = ()
    finished: bool = False
    error: str | None = None


Deliver = Callable[[BatchOutput], None]
"""Called on the worker's thread; must be quick and must not raise."""


def can_batch(served: ServedModel) -> bool:
    """Whether this kind of model can be batched at all: text in, text out."""
    return served.modality == Modality.LLM and hasattr(served.model, "init_continuous_batching")


class BatchWorker:
    """The batching thread and KV pool of one model. Made on the model's thread; the rest from any thread."""

    def __init__(self, model: "PreTrainedModel", limits: PoolLimits) -> None:
        """Takes the memory and starts the thread. Raises whatever upstream raises for a model that it cannot
        batch, and then leaves the model as it was.
        """
        _use_our_logging()
        attention = model.config._attn_implementation
        manager: Any = model.init_continuous_batching(
            generation_config=_every_processor(), continuous_batching_config=pool_config(model, limits)
        )
        try:
            self._outputs = manager.output_router = _Outputs()
            _add_greedy_rows(manager.logit_processor)
            manager.warmup()
            cache = manager.batch_processor.cache
            self.capacity: int = infer_max_single_request_tokens(cache)
            """Tokens of prompt and answer that the pool can hold for one request that is alone."""
            self.pool_bytes: int = cache.cache_tensor.nbytes
            self.pool_device = str(cache.cache_tensor.device)
            manager.start()
        except BaseException:
            if model.config._attn_implementation != attention:
                model.set_attn_implementation(attention)
            raise
        self._manager: Any = manager

    @property
    def failure(self) -> str | None:
        """Why no more requests are taken; None while all is well."""
        manager = self._manager
        if manager is None:
            return "it was stopped"
        reason: str | None = manager.background_thread_status.can_accept_new_requests()
        return reason

    def add(
        self,
        request_id: str,
        ids: Sequence[int],
        *,
        max_new_tokens: int,
        ends: Collection[int],
        sampling: RowSampling,
        deliver: Deliver,
    ) -> None:
        """Let a request join the batch. `deliver` is always called to the end, unless it is cancelled."""
        manager = self._manager
        if manager is None:
            deliver(BatchOutput(error="it was stopped"))
            return
        self._outputs.register(request_id, deliver)
        manager.add_request(
            list(ids),
            request_id=request_id,
            max_new_tokens=max_new_tokens,
            streaming=True,
            eos_token_id=list(ends) or -1,
            temperature=float(sampling.temperature),
            top_k=sampling.top_k or _NO_TOP_K,
            top_p=float(sampling.top_p),
            greedy=sampling.greedy,
        )
        # A worker that died before it took the request says nothing about it.
        if (reason := self.failure) is not None:
            self._outputs.fail(request_id, reason)

    def cancel(self, request_id: str) -> None:
        """Drop the request with the step that runs. Nothing more is delivered."""
        self._outputs.forget(request_id)
        manager = self._manager
        if manager is not None:
            manager.cancel_request(request_id)

    def stop(self) -> None:
        """Fail what runs, end the thread and give the pool back. Idempotent."""
        manager, self._manager = self._manager, None
        if manager is None:
            return
        manager.stop(block=True, timeout=STOP_SECONDS, hard_stop=True)
        self._outputs.fail_all("it was stopped")


class _Outputs(OutputRouter):
    """Hands outputs to plain callbacks on the worker's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._guard = threading.Lock()
        self._deliveries: dict[str, tuple[Deliver, int]] = {}

    def register(self, request_id: str, deliver: Deliver) -> None:
        with self._guard:
            self._deliveries[request_id] = (deliver, 0)

    def forget(self, request_id: str) -> None:
        with self._guard:
            self._deliveries.pop(request_id, None)

    def fail(self, request_id: str, error: str) -> None:
        with self._guard:
            entry = self._deliveries.pop(request_id, None)
        if entry is not None:
            entry[0](BatchOutput(error=error))

    def fail_all(self, error: str) -> None:
        for request_id in tuple(self._deliveries):
            self.fail(request_id, error)

    def deliver(self, output: Any) -> None:
        if output.error is not None:
            self.fail(output.request_id, output.error)
            return
        with self._guard:
            entry = self._deliveries.get(output.request_id)
            if entry is None:  # cancelled meanwhile
                return
            deliver, seen = entry
            if output.is_finished():
                del self._deliveries[output.request_id]
            else:
                self._deliveries[output.request_id] = (deliver, len(output.generated_tokens))
        deliver(BatchOutput(output.generated_tokens[seen:], output.is_finished()))

    def deliver_batch(self, outputs: list[Any]) -> None:
        for output in outputs:
            self.deliver(output)


class _GreedyRows(ContinuousBatchingLogitsProcessor):
    """Takes every token but the most likely one from the requests that are greedy."""

    supported_kwargs: ClassVar[dict[str, type]] = {"greedy": bool}
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        int32_tensor.fill_(0)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
        flags = [bool(row.state.logit_processor_kwargs.get("greedy")) for row in requests_with_new_token]
        return torch.tensor(flags, dtype=torch.int32, device="cpu")

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        greedy = tensor_arg[: scores.size(0)].bool().unsqueeze(-1)
        best = scores.argmax(dim=-1, keepdim=True)
        others = torch.ones_like(scores, dtype=torch.bool).scatter(-1, best, False)
        return scores.masked_fill(greedy & others, -float("inf"))


def _use_our_logging() -> None:
    _upstream_log.handlers.clear()
    _upstream_log.propagate = True
    _upstream_log.setLevel(logging.WARNING)


def _add_greedy_rows(processors: ContinuousBatchingLogitsProcessorList) -> None:
    """First, so that ties are broken as `generate` breaks them."""
    processors.logits_processor.insert(0, _GreedyRows())
    processors.tensors_required += 1
    processors._retrieve_processors_kwargs()


def _every_processor() -> GenerationConfig:
    """Upstream makes a processor per request only for what the shared config sets. The values do not matter:
    each request brings its own.
    """
    return GenerationConfig(do_sample=True, temperature=0.5, top_k=50, top_p=0.5, eos_token_id=-1)
