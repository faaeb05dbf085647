"""The engines of the models in memory, each made at its model's first request."""

from collections.abc import Callable
from typing import Protocol

from hf_transformers_backend.generation.defaults import NO_DEFAULTS, Defaults
from hf_transformers_backend.generation.engine import Engine
from hf_transformers_backend.generation.image_fetch import NO_IMAGES, ImageFetcher
from hf_transformers_backend.generation.turns import QueueMetrics, Turns
from hf_transformers_backend.upstream.batch_pool import PoolLimits
from hf_transformers_backend.upstream.served_model import ServedModel


class TokenMetrics(QueueMetrics, Protocol):
    """What a request tells about itself."""

    def observe_first_token(self, model: str | None, cold: bool, seconds: float) -> None: ...

    def count_tokens(self, model: str | None, *, prompt: int = 0, generated: int = 0) -> None: ...


class Engines:
    """The engines of the models in memory. An engine goes with its model. For the event loop only.

    With a `pool` concurrent requests share a model's steps, where it can be batched. `failed_with` is told
    what torch work raises.
    """

    def __init__(
        self,
        *,
        max_queue: int,
        metrics: TokenMetrics,
        defaults: Defaults = NO_DEFAULTS,
        pool: PoolLimits | None = None,
        images: ImageFetcher = NO_IMAGES,
        failed_with: Callable[[BaseException], None] = lambda _: None,
    ) -> None:
        self._max_queue = max_queue
        self.defaults = defaults
        self._pool = pool
        self._images = images
        self._failed_with = failed_with
        self.metrics = metrics
        self._engines: dict[str, Engine] = {}

    def of(self, served: ServedModel) -> Engine:
        """The one engine of this model."""
        engine = self._engines.get(served.key)
        if engine is None:
            turns = Turns(served.executor, self._max_queue, self.metrics)
            engine = self._engines[served.key] = Engine(
                served,
                turns,
                defaults=self.defaults,
                pool=self._pool,
                images=self._images,
                failed_with=self._failed_with,
            )
            served.resources.callback(self._engines.pop, served.key, None)
        return engine
