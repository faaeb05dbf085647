"""The field `generation_config`: what is taken, what is refused by name, what clients of upstream send."""

import json
from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.failure import explained_failure
from hf_transformers_backend.generation.generation_config import generation_config_of, may_not_fit, tokens_in
from hf_transformers_backend.generation.request import Sampling
from hf_transformers_backend.generation.sampling import build_generation_config
from transformers import GenerationConfig
from transformers.cli.chat import parse_generate_flags


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min_length", "x"),
        ("min_length", -5),
        ("exponential_decay_length_penalty", "x"),
        ("exponential_decay_length_penalty", [1]),
        ("exponential_decay_length_penalty", [-1, 2]),
        ("sequence_bias", "x"),
        ("sequence_bias", []),
        ("sequence_bias", [[[], 5.0]]),
        ("sequence_bias", [[[1], 1e300]]),
        ("bad_words_ids", []),
        ("bad_words_ids", [[]]),
        ("bad_words_ids", [[-1]]),
        ("eos_token_id", []),
        ("eos_token_id", -2),
        ("forced_eos_token_id", -1),
        ("top_k", 10**30),
        ("temperature", 1e300),
        ("repetition_penalty", 1e-300),
        ("length_penalty", 1e308),
        ("early_stopping", "x"),
        ("remove_invalid_values", "x"),
        # So many slices of the prompt are made of it.
        ("encoder_no_repeat_ngram_size", 10**9),
        ("cache_implementation", "quantized"),
        ("cache_implementation", "offloaded"),
        ("num_return_sequences", 2),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_key(key: str, value: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        generation_config_of(json.dumps({key: value, "num_beams": 2}))
    assert str(caught.value.param).startswith(f"generation_config.{key}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("prefill_chunk_size", value) for value in (-1, 0, 1, "x")),
        ("token_healing", True),
        ("constraints", [1]),
        ("force_words_ids", [[1]]),
        ("is_assistant", True),
        ("prompt_lookup_num_tokens", 3),
        ("watermarking_config", {}),
        ("custom_generate", "owner/name"),
        ("update", 1),
        ("__class__", 1),
        ("x" * 100_000, 1),
    ],
)
def test_what_is_not_on_the_list_is_refused_with_the_list(key: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=r"is not among what a request may set.*temperature") as caught:
        generation_config_of(json.dumps({key: value}))
    assert caught.value.param == f"generation_config.{key[:64]}"
    assert len(caught.value.message) < 2000


@pytest.mark.parametrize(
    ("sent", "asked"),
    [
        (GenerationConfig().to_json_string(use_diff=False), {}),
        (GenerationConfig().to_json_string(), {}),
        (json.dumps(GenerationConfig._get_default_generation_params()), {"temperature": 1.0, "top_k": 50}),
        (GenerationConfig(do_sample=True, max_new_tokens=256).to_json_string(), {"max_new_tokens": 256}),
        (
            GenerationConfig(
                **parse_generate_flags(["temperature=2", "eos_token_id=[1,2]"])
            ).to_json_string(),
            {"temperature": 2.0, "eos_token_id": [1, 2]},
        ),
        (
            GenerationConfig(
                do_sample=True, bos_token_id=1, eos_token_id=[2], pad_token_id=-1, _from_model_config=True
            ).to_json_string(),
            {"bos_token_id": 1, "eos_token_id": [2], "pad_token_id": -1},
        ),
    ],
)  # fmt: skip
def test_what_the_clients_of_transformers_serve_send_is_taken(sent: str, asked: dict[str, Any]) -> None:
    got = generation_config_of(sent)
    assert got is not None and asked.items() <= got.items()
    assert "transformers_version" not in got
    build_generation_config(
        Sampling(generation_config=got), GenerationConfig(), max_tokens=None, default=None, room=None
    )


def test_the_tokens_of_every_key_are_found() -> None:
    config = {
        "eos_token_id": [1, 2],
        "pad_token_id": -1,
        "forced_eos_token_id": 3,
        "bad_words_ids": [[4, 5], [6]],
        "sequence_bias": [[[7, 8], -1.0]],
        "suppress_tokens": [9],
    }
    understood = generation_config_of(json.dumps({**config, "top_k": 99}))
    assert understood is not None
    assert sorted(token for _, tokens in tokens_in(understood) for token in tokens) == list(range(1, 10))


@pytest.mark.parametrize(
    "failure",
    [
        ValueError("what the caller wrote"),
        RuntimeError("probability tensor contains either `inf`, `nan` or element < 0"),
    ],
)
def test_values_that_fail_together_are_a_fault_of_the_request(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    error = explained_failure(failure, "generation_config")
    assert isinstance(error, BadRequest) and error.param == "generation_config"
    assert "what the caller wrote" not in error.message + caplog.text


@pytest.mark.parametrize(
    ("values", "may_not"),
    [
        (None, False),
        ({"do_sample": True, "max_new_tokens": 256}, False),  # what `transformers chat` always sends
        ({"num_beams": 2}, True),
        ({"do_sample": True, "bad_words_ids": [[1]]}, True),
    ],
)
def test_a_failure_beside_plain_values_is_no_fault_of_theirs(values: dict[str, Any], may_not: bool) -> None:
    assert may_not_fit(values) is may_not


def test_a_failure_is_logged_with_its_place_and_without_what_it_may_quote(
    caplog: pytest.LogCaptureFixture,
) -> None:
    try:
        int("what the caller wrote")
    except ValueError as error:
        explained_failure(error)
    assert "test_generation_config.py" in caplog.text and "ValueError" in caplog.text
    assert "invalid literal" not in caplog.text
    explained_failure(RuntimeError("shapes do not match"))
    assert "shapes do not match" in caplog.text
