"""The body field `generation_config`."""

from typing import Annotated

from pydantic import Field

from hf_transformers_backend.schemas.base import Body, OnlyOne, Stop, TokenId, TokenLimit


class GenerationConfigField(Body):
    """What the JSON text in `generation_config` may say; other keys reach transformers as they are."""

    do_sample: bool | None = None
    max_new_tokens: TokenLimit | None = None
    min_new_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_h: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None
    epsilon_cutoff: Annotated[float, Field(ge=0, lt=1)] | None = None
    eta_cutoff: Annotated[float, Field(ge=0, lt=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0)] | None = None
    no_repeat_ngram_size: Annotated[int, Field(ge=0)] | None = None
    length_penalty: float | None = None
    num_beams: Annotated[int, Field(ge=1, le=16)] | None = None
    num_return_sequences: OnlyOne | None = None
    max_time: Annotated[float, Field(gt=0)] | None = None
    bos_token_id: TokenId | None = None
    pad_token_id: Annotated[int, Field(ge=-1)] | None = None
    eos_token_id: Annotated[int, Field(ge=-1)] | list[TokenId] | None = None
    suppress_tokens: list[TokenId] | None = None
    begin_suppress_tokens: list[TokenId] | None = None
    bad_words_ids: list[list[TokenId]] | None = None
    stop_strings: Stop | None = None
    guidance_scale: OnlyOne | None = None
    penalty_alpha: None = None
    dola_layers: None = None
    prompt_lookup_num_tokens: None = None
    watermarking_config: None = None
    compile_config: None = None
