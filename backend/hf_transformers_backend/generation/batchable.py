"""What a batch can do for one request: temperature, top_k and top_p are applied per request, and no more.

Whatever else would change the answer is refused by name instead of being dropped.
"""

from transformers import GenerationConfig

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.request import Sampling
from hf_transformers_backend.upstream.batching import RowSampling

# Applied per request, or without an influence on which tokens come.
_HONORED = frozenset(
    {"do_sample", "temperature", "top_k", "top_p", "max_new_tokens", "max_length", "stop_strings"}
    | {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"}
    | {"use_cache", "cache_implementation", "cache_config", "return_dict_in_generate", "transformers_version"}
    | {"output_attentions", "output_hidden_states", "output_scores", "output_logits"}
)


def unbatchable(config: GenerationConfig) -> str | None:
    """The first parameter of a generation config that a batch would drop; None if there is none."""
    known, neutral = GenerationConfig().to_dict(), GenerationConfig._get_default_generation_params()
    name: str
    for name, value in config.to_diff_dict().items():
        if name.startswith("_") or name in _HONORED or name not in known:
            continue
        if value is not None and value != neutral.get(name):
            return name
    return None


def row_sampling(sampling: Sampling, config: GenerationConfig) -> RowSampling:
    """The request's part in the batch. Raises BadRequest that names the first parameter it cannot honor."""
    dropped = unbatchable(config)
    if dropped is not None:
        raise _refused(f"generation_config: {dropped}", "generation_config")
    for name in ("presence_penalty", "frequency_penalty", "logit_bias"):
        if getattr(sampling, name):
            raise _refused(name, name)
    if not config.do_sample:
        return RowSampling()
    if sampling.seed is not None:
        raise _refused("seed (with a temperature above 0)", "seed")
    return RowSampling(
        greedy=False,
        temperature=1.0 if config.temperature is None else float(config.temperature),
        top_k=config.top_k or None,
        top_p=1.0 if config.top_p is None else float(config.top_p),
    )


def _refused(what: str, param: str) -> BadRequest:
    return BadRequest(
        f"{what} cannot be honored for one request of a batch; leave it out, or run the server without "
        "--continuous-batching",
        param=param,
        code="unsupported_with_continuous_batching",
    )
