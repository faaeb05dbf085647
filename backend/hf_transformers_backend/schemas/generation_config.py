"""The body field `generation_config`: what a request may say of transformers' GenerationConfig.

Nothing else reaches `generate`, where a wrong value is an error of the server, and on an accelerator one that
ends it for everybody.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hf_transformers_backend.schemas.base import Body, Items, OnlyOne, Stop, TokenId, TokenLimit

Count = Annotated[int, Field(ge=0, lt=2**31)]
NgramSize = Annotated[int, Field(ge=0, le=100)]
RepetitionPenalty = Annotated[float, Field(ge=0.01, le=100)]
Cutoff = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
TokenOrNone = Annotated[int, Field(ge=-1)]
"""A token, or -1 for none."""
Tokens = Annotated[Items[TokenId], Field(min_length=1)]
Words = Annotated[Items[Tokens], Field(min_length=1, max_length=10_000)]
SequenceBias = tuple[Tokens, Annotated[float, Field(ge=-100, le=100)]]
LengthDecay = tuple[Count, Annotated[float, Field(gt=0, le=10)]]


class GenerationConfigField(Body):
    """What the JSON text in `generation_config` may say."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    do_sample: bool | None = None
    max_new_tokens: TokenLimit | None = None
    min_new_tokens: Count | None = None
    min_length: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_k: Count | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_h: Share | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    typical_p: Share | None = None
    epsilon_cutoff: Cutoff | None = None
    eta_cutoff: Cutoff | None = None
    repetition_penalty: RepetitionPenalty | None = None
    encoder_repetition_penalty: RepetitionPenalty | None = None
    no_repeat_ngram_size: NgramSize | None = None
    encoder_no_repeat_ngram_size: NgramSize | None = None
    length_penalty: Annotated[float, Field(ge=-5, le=5)] | None = None
    exponential_decay_length_penalty: Annotated[LengthDecay, Field(strict=False)] | None = None
    num_beams: Annotated[int, Field(ge=1, le=16)] | None = None
    early_stopping: bool | Literal["never"] | None = None
    num_return_sequences: OnlyOne | None = None
    guidance_scale: OnlyOne | None = None
    max_time: Annotated[float, Field(gt=0)] | None = None
    renormalize_logits: bool | None = None
    remove_invalid_values: bool | None = None
    bos_token_id: TokenId | None = None
    pad_token_id: TokenOrNone | None = None
    eos_token_id: TokenOrNone | Tokens | None = None
    decoder_start_token_id: TokenId | None = None
    forced_bos_token_id: TokenId | None = None
    forced_eos_token_id: TokenId | Tokens | None = None
    suppress_tokens: Items[TokenId] | None = None
    begin_suppress_tokens: Items[TokenId] | None = None
    bad_words_ids: Words | None = None
    sequence_bias: (
        Annotated[Items[Annotated[SequenceBias, Field(strict=False)]], Field(min_length=1, max_length=10_000)]
        | None
    ) = None
    stop_strings: Stop | None = None
    cache_implementation: (
        Literal["dynamic", "static", "hybrid", "hybrid_chunked", "sliding_window"] | None
    ) = None
