"""Continuous batching and its pool of memory."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings

from hf_transformers_backend.settings.kinds import NONE_WORD


class BatchingSettings(BaseSettings):
    """Whether requests to a model share its steps, and what that may take."""

    continuous_batching: bool = Field(
        False,
        description="Let concurrent requests to a text model share its steps; meant for GPUs. A model takes "
        "a pool of memory, and sampling parameters beyond temperature, top_p and top_k are refused.",
    )
    cb_block_size: Annotated[int | None, NONE_WORD] = Field(
        None, ge=4, description="Continuous batching: tokens in one block of the pool; none = 256."
    )
    cb_num_blocks: Annotated[int | None, NONE_WORD] = Field(
        None,
        ge=1,
        description="Continuous batching: blocks in a model's pool; none = what --cb-max-memory-percent "
        "leaves, on a CPU 32.",
    )
    cb_max_batch_tokens: Annotated[int | None, NONE_WORD] = Field(
        None,
        ge=1,
        description="Continuous batching: tokens that one step computes at most; none = sized with the pool, "
        "on a CPU 256.",
    )
    cb_max_memory_percent: Annotated[float | None, NONE_WORD] = Field(
        None,
        gt=0,
        le=1,
        description="Continuous batching: part of the memory that is free once the model is loaded, as a "
        "fraction (0-1), that its pool may take; none = 0.8.",
    )
    cb_use_cuda_graph: Annotated[bool | None, NONE_WORD] = Field(
        None, description="Continuous batching: replay steps as CUDA graphs; none = where they pay."
    )
