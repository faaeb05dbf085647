"""The KV pool of a batched model: what upstream's `ContinuousBatchingConfig` is told.

Replaced, in transformers 5.24:
* The size on a CPU: upstream takes 60 % of the free RAM. Until it has a default for CPUs.
* The seed: without one, `torch.randint` of the untouched global generator gives every process the same.
"""

import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformers import ContinuousBatchingConfig

from hf_transformers_backend.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_log = logging.getLogger(__name__)

# Enough for a few conversations. A step computes at most 256 tokens, so that a long prompt does not hold up
# the others.
CPU_PAGES = 32
CPU_BATCH_TOKENS = 256
PAGE_TOKENS = 256
"""Upstream's default."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """What the server was told about pools; None leaves the choice to upstream, on a CPU to us."""

    page_tokens: int | None = None
    pages: int | None = None
    step_tokens: int | None = None
    memory_fraction: float | None = None
    """Of what is free when the model is in memory; pages, if given, win."""
    cuda_graphs: bool | None = None
    seed: int | None = None

    def known_tokens(self, *, on_cpu: bool) -> int:
        """Tokens that the pool will hold; 0 where that depends on the memory that is free."""
        pages = self.pages
        if pages is None and on_cpu and self.memory_fraction is None:
            pages = CPU_PAGES
        return (pages or 0) * (self.page_tokens or PAGE_TOKENS)


def pool_limits(settings: Settings) -> PoolLimits | None:
    """What the settings say about pools; None without --continuous-batching."""
    if not settings.continuous_batching:
        return None
    return PoolLimits(
        page_tokens=settings.cb_block_size,
        pages=settings.cb_num_blocks,
        step_tokens=settings.cb_max_batch_tokens,
        memory_fraction=settings.cb_max_memory_percent,
        cuda_graphs=settings.cb_use_cuda_graph,
        seed=settings.default_seed,
    )


def pool_config(model: "PreTrainedModel", limits: PoolLimits) -> ContinuousBatchingConfig:
    """The configuration of one model's manager."""
    config = ContinuousBatchingConfig(
        num_blocks=limits.pages,
        max_batch_tokens=limits.step_tokens,
        max_memory_percent=limits.memory_fraction,
        use_cuda_graph=limits.cuda_graphs,
        per_request_processors=True,
        drop_unsupported_processors=False,
        # The attention is the one that the operator of this server chose; others round differently, and
        # upstream would look for kernels on the hub.
        auto_switch_to_flash=False,
        seed=secrets.randbits(32) if limits.seed is None else limits.seed,
    )
    if limits.page_tokens is not None:
        config.page_size = limits.page_tokens
    if model.device.type == "cpu":
        _size_for_cpu(config, type(model).__name__)
    return config


def _size_for_cpu(config: ContinuousBatchingConfig, name: str) -> None:
    if config.max_batch_tokens is None:
        config.max_batch_tokens = CPU_BATCH_TOKENS
    if config.num_blocks is None and config.max_memory_percent is None:
        config.num_blocks = CPU_PAGES
    size = (
        f"{config.num_blocks * config.page_size} tokens"
        if config.num_blocks is not None
        else f"{config.max_memory_percent:g} of the free memory"
    )
    _log.warning(
        "continuous batching on a CPU: a pool of %s for %s, %d tokens in a step at most, and a request that "
        "is alone is slower than without --continuous-batching",
        size,
        name,
        config.max_batch_tokens,
    )
