"""The engines of the models in memory, each made at its model's first request."""

from typing import Protocol

from hf_transformers_backend.generation.engine import Engine
from hf_transformers_backend.generation.turns import QueueMetrics, Turns
from hf_transformers_backend.upstream.served_model import ServedModel


class TokenMetrics(QueueMetrics, Protocol):
    """What a request tells about itself."""

    def observe_first_token(self, model: str | None, cold: bool, seconds: float) -> None: ...

    def count_tokens(self, model: str | None, *, prompt: int = 0, generated: int = 0) -> None: ...


class Engines:
    """The engines of the models in memory. An engine goes with its model. For the event loop only."""

    def __init__(
        self,
        *,
        max_queue: int,
        default_max_tokens: int | None,
        metrics: TokenMetrics,
        batching: bool = False,
    ) -> None:
        self._max_queue = max_queue
        self._default_max_tokens = default_max_tokens
        self._batching = batching
        self.metrics = metrics
        self._engines: dict[str, Engine] = {}

    def of(self, served: ServedModel) -> Engine:
        """The one engine of this model."""
        engine = self._engines.get(served.key)
        if engine is None:
            turns = Turns(served.executor, self._max_queue, self.metrics)
            engine = self._engines[served.key] = Engine(
                served, turns, default_max_tokens=self._default_max_tokens, batching=self._batching
            )
            served.resources.callback(self._engines.pop, served.key, None)
        return engine
