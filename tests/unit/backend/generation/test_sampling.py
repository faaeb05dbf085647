"""Sampling samples, greedy is greedy, a seed repeats, penalties and biases do what OpenAI says."""

import copy
from typing import Any

import pytest
import torch
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.request import Sampling
from hf_transformers_backend.generation.sampling import (
    GumbelChoice,
    LogitBias,
    Penalties,
    build_generation_config,
    end_tokens,
    logits_processors,
)
from transformers import GenerationConfig

CPU = torch.device("cpu")
GREEDY = GenerationConfig(do_sample=False, eos_token_id=7)
SAMPLING = GenerationConfig(do_sample=True, temperature=0.6, top_k=20, eos_token_id=[7, 9], pad_token_id=3)


def config(
    sampling: Sampling = Sampling(),  # noqa: B008 - frozen
    own: GenerationConfig = GREEDY,
    max_tokens: int | None = None,
    default: int | None = None,
    room: int | None = None,
) -> GenerationConfig:
    return build_generation_config(sampling, own, max_tokens=max_tokens, default=default, room=room)


@pytest.mark.parametrize(
    ("sampling", "own", "samples"),
    [
        (Sampling(), GREEDY, False),
        (Sampling(), SAMPLING, True),
        (Sampling(temperature=0.7), GREEDY, True),
        (Sampling(temperature=0), SAMPLING, False),
        (Sampling(temperature=0, top_p=0.5), SAMPLING, False),
        (Sampling(temperature=1e-40), SAMPLING, False),
        (Sampling(generation_config={"do_sample": True, "temperature": 1e-300}), GREEDY, False),
        (Sampling(top_p=0.5), GREEDY, True),
        (Sampling(top_p=1), GREEDY, False),
        (Sampling(seed=1), GREEDY, False),
        (Sampling(generation_config={"do_sample": True}), GREEDY, True),
        (Sampling(generation_config={"do_sample": True}, temperature=0), GREEDY, False),
    ],
)
def test_the_request_decides_whether_to_sample(sampling: Sampling, own: Any, samples: bool) -> None:
    assert bool(config(sampling, own).do_sample) is samples


@pytest.mark.parametrize(
    ("asked", "own", "default", "room", "expected"),
    [
        (None, None, None, None, 1024),
        (None, None, None, 100, 100),
        (None, 4096, None, 8000, 4096),
        (None, 16, None, 8000, 1024),
        (None, 4096, 50, 8000, 50),
        (None, None, 50, 20, 20),
        (5, 4096, 50, 8000, 5),
        (500, None, None, 100, 100),
    ],
)
def test_no_answer_is_longer_than_the_context_leaves(
    asked: int | None, own: int | None, default: int | None, room: int | None, expected: int
) -> None:
    models_own = GenerationConfig(max_new_tokens=own, eos_token_id=7)
    assert config(own=models_own, max_tokens=asked, default=default, room=room).max_new_tokens == expected


def test_the_generation_config_field_replaces_the_models_own() -> None:
    got = config(Sampling(generation_config={"top_k": 3, "max_new_tokens": 9}), SAMPLING)
    assert (got.top_k, got.max_new_tokens, got.temperature) == (3, 9, None)
    assert config(Sampling(generation_config={"max_new_tokens": 9}), max_tokens=4).max_new_tokens == 4


def test_what_transformers_refuses_is_a_fault_of_the_request() -> None:
    with pytest.raises(BadRequest) as caught:
        config(Sampling(generation_config={"cache_implementation": 5}))
    assert caught.value.param == "generation_config"


def test_the_models_own_config_is_never_changed() -> None:
    before = copy.deepcopy(SAMPLING).to_dict()
    got = config(Sampling(temperature=1.5, top_p=0.1), SAMPLING, max_tokens=3)
    logits_processors(Sampling(), got, prompt_tokens=0, device=CPU)
    assert SAMPLING.to_dict() == before


@pytest.mark.parametrize(("own", "ends"), [(GREEDY, {7}), (SAMPLING, {7, 9}), (GenerationConfig(), set())])
def test_the_end_tokens_are_the_models(own: GenerationConfig, ends: set[int]) -> None:
    assert end_tokens(config(own=own), own) == ends


def choices(sampling: Sampling, own: GenerationConfig, logits: list[float], count: int) -> list[int]:
    got = config(sampling, own)
    processors = logits_processors(sampling, got, prompt_tokens=0, device=CPU)
    assert not got.do_sample  # generate must not draw again
    scores = torch.tensor([logits])
    return [
        int(processors(torch.zeros((1, 1), dtype=torch.long), scores.clone()).argmax()) for _ in range(count)
    ]


def test_samples_follow_the_softmax_of_the_warped_logits() -> None:
    logits = [2.0, 1.0, 0.0, -1.0]
    drawn = choices(Sampling(temperature=0.5, seed=3), GREEDY, logits, 4000)
    expected = torch.softmax(torch.tensor(logits) / 0.5, dim=0)
    got = torch.bincount(torch.tensor(drawn), minlength=4) / len(drawn)
    assert torch.allclose(got, expected, atol=0.03)


def test_top_p_and_top_k_cut_the_tail() -> None:
    assert set(choices(Sampling(temperature=1, top_p=0.5), GREEDY, [3.0, 0, 0, 0], 200)) == {0}
    two = Sampling(generation_config={"do_sample": True, "top_k": 2})
    assert set(choices(two, GREEDY, [1.0, 1.0, 0.9, 0.9], 200)) == {0, 1}


def test_a_seed_repeats_and_no_seed_does_not() -> None:
    flat = [0.0] * 50
    seeded = Sampling(temperature=1, seed=11)
    assert choices(seeded, GREEDY, flat, 30) == choices(seeded, GREEDY, flat, 30)
    assert choices(Sampling(temperature=1), GREEDY, flat, 30) != choices(
        Sampling(temperature=1), GREEDY, flat, 30
    )


def test_a_forbidden_token_is_never_drawn() -> None:
    processor = GumbelChoice([], 0, CPU)
    processor._warpers = lambda _, scores: scores
    scores = torch.tensor([[0.0, float("-inf")]])
    assert all(int(processor(torch.zeros(1, 1), scores).argmax()) == 0 for _ in range(500))


def test_penalties_count_generated_tokens_only() -> None:
    ids = torch.tensor([[1, 1, 2, 2, 3]])
    scores = Penalties(presence=1.0, frequency=0.5, prompt_tokens=2)(ids, torch.zeros(1, 5))
    assert scores.tolist() == [[0, 0, -2.0, -1.5, 0]]


def test_logit_bias_is_added() -> None:
    assert LogitBias({1: -100, 2: 5}, CPU)(torch.zeros(1, 1), torch.ones(1, 4)).tolist() == [[1, -99, 6, 1]]
