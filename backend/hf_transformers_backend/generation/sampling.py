"""From a request's sampling fields to what `generate` takes.

`generate` draws from torch's global generator, which the threads of all models share. Here a sampled
token is the maximum of the logits plus Gumbel noise from a generator of the request's own (the same
distribution), so that a seed repeats whatever else runs.
"""

import copy
import secrets
from collections.abc import Mapping
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.request import Sampling

_DEFAULT_MAX_TOKENS = 1024
LEAST_TEMPERATURE = 1e-5
"""Below it the best token is drawn anyway, and the division of the scores runs over."""


def build_generation_config(
    sampling: Sampling,
    models_own: GenerationConfig,
    *,
    max_tokens: int | None,
    default: int | None,
    room: int | None,
) -> GenerationConfig:
    """The request's generation config.

    `room` is what the context leaves; no answer is ever allowed to be longer.
    """
    config = _base(sampling.generation_config, models_own)
    if sampling.temperature is not None:
        config.do_sample = sampling.temperature >= LEAST_TEMPERATURE
        config.temperature = sampling.temperature if config.do_sample else 1.0
    elif sampling.top_p is not None and sampling.top_p < 1:
        config.do_sample = True
    if sampling.top_p is not None:
        config.top_p = sampling.top_p
    asked = max_tokens or (config.max_new_tokens if sampling.generation_config else None)
    wanted = asked or default or max(models_own.max_new_tokens or 0, _DEFAULT_MAX_TOKENS)
    config.max_new_tokens = wanted if room is None else min(wanted, room)
    config.max_length = None
    config.return_dict_in_generate = False
    if config.pad_token_id is None:
        config.pad_token_id = min(
            (token for token in end_tokens(config, models_own) if token >= 0), default=0
        )
    return config


def end_tokens(config: GenerationConfig, models_own: GenerationConfig) -> frozenset[int]:
    """The ids that end an answer."""
    eos = config.eos_token_id if config.eos_token_id is not None else models_own.eos_token_id
    if eos is None:
        return frozenset()
    return frozenset(eos if isinstance(eos, list) else [eos])


def logits_processors(
    sampling: Sampling, config: GenerationConfig, *, prompt_tokens: int, device: torch.device
) -> Any:
    """Penalties, biases and the choice itself. Turns `config` greedy when the choice is made here."""
    processors = LogitsProcessorList()
    if sampling.presence_penalty or sampling.frequency_penalty:
        processors.append(Penalties(sampling.presence_penalty, sampling.frequency_penalty, prompt_tokens))
    if sampling.logit_bias:
        processors.append(LogitBias(sampling.logit_bias, device))
    if config.do_sample and (config.num_beams or 1) == 1:
        processors.append(GumbelChoice(_warpers(config, device), sampling.seed, device))
        config.do_sample = False
        config.temperature = config.top_p = config.top_k = None
        config.min_p = config.typical_p = config.top_h = None
        config.epsilon_cutoff = config.eta_cutoff = 0.0
    return processors


class GumbelChoice(LogitsProcessor):
    """Adds noise so that the arg max is a sample of the warped distribution.

    One per request: it has state.
    """

    def __init__(self, warpers: LogitsProcessorList, seed: int | None, device: torch.device) -> None:
        self._warpers = warpers
        self._generator = torch.Generator(device=device)
        self._generator.manual_seed(secrets.randbits(63) if seed is None else seed)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Warped scores plus Gumbel noise."""
        warped: torch.Tensor = self._warpers(input_ids, scores)
        noise = torch.empty_like(warped).exponential_(generator=self._generator)
        noise = noise.clamp_min_(torch.finfo(noise.dtype).tiny).log_()
        return warped - noise


class Penalties(LogitsProcessor):
    """OpenAI's presence and frequency penalties: on generated tokens only, subtracted from the logits."""

    def __init__(self, presence: float, frequency: float, prompt_tokens: int) -> None:
        self._presence = presence
        self._frequency = frequency
        self._prompt_tokens = prompt_tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores with the penalties taken off."""
        generated = input_ids[0, self._prompt_tokens :]
        counts = torch.bincount(generated, minlength=scores.shape[-1])[: scores.shape[-1]].to(scores.dtype)
        return scores - self._frequency * counts - self._presence * (counts > 0)


class LogitBias(LogitsProcessor):
    """OpenAI's logit_bias: a number added to the logits of some tokens."""

    def __init__(self, bias: Mapping[int, float], device: torch.device) -> None:
        self._ids = torch.tensor(list(bias), dtype=torch.long, device=device)
        self._values = torch.tensor(list(bias.values()), dtype=torch.float32, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores with the bias added."""
        return scores.index_add(-1, self._ids, self._values.to(scores.dtype)[None, :])


def _base(values: Mapping[str, Any] | None, models_own: GenerationConfig) -> GenerationConfig:
    if values is None:
        return copy.deepcopy(models_own)
    try:
        config = GenerationConfig(**values)
    except (TypeError, ValueError, AttributeError) as error:
        raise BadRequest(f"generation_config: {error}", param="generation_config") from error
    if config.temperature is not None and 0 <= config.temperature < LEAST_TEMPERATURE:
        config.do_sample, config.temperature = False, 1.0
    return config


def _warpers(config: GenerationConfig, device: torch.device) -> LogitsProcessorList:
    """What `generate` would apply before it draws a token, in its order."""
    warpers = LogitsProcessorList()
    if config.temperature is not None and config.temperature != 1.0:
        warpers.append(logits_process.TemperatureLogitsWarper(float(config.temperature)))
    if config.top_h is not None:
        warpers.append(logits_process.TopHLogitsWarper(top_h=config.top_h))
    if config.top_k:
        warpers.append(logits_process.TopKLogitsWarper(top_k=config.top_k))
    if config.top_p is not None and config.top_p < 1.0:
        warpers.append(logits_process.TopPLogitsWarper(top_p=config.top_p))
    if config.min_p is not None:
        warpers.append(logits_process.MinPLogitsWarper(min_p=config.min_p))
    if config.typical_p is not None and config.typical_p < 1.0:
        warpers.append(logits_process.TypicalLogitsWarper(mass=config.typical_p))
    if config.epsilon_cutoff is not None and 0.0 < config.epsilon_cutoff < 1.0:
        warpers.append(logits_process.EpsilonLogitsWarper(epsilon=config.epsilon_cutoff))
    if config.eta_cutoff is not None and 0.0 < config.eta_cutoff < 1.0:
        warpers.append(logits_process.EtaLogitsWarper(epsilon=config.eta_cutoff, device=str(device)))
    return warpers
