"""Filling in the middle: for models whose tokenizer has the tokens for it, and for no others."""

from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.infill import FAMILIES, InfillTokens, infill_tokens
from hf_transformers_backend.generation.request import InfillPrompt
from hf_transformers_backend.generation.template import encode_prompt

from tests.support.tiny_models import byte_tokenizer, served_model, tiny_model


def tokenizer_with(marks: InfillTokens | tuple[str, ...]) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(marks)})
    return tokenizer


@pytest.mark.parametrize("marks", FAMILIES, ids=lambda marks: marks.middle)
def test_prefix_and_suffix_stand_behind_the_marks_of_the_family(marks: InfillTokens) -> None:
    tokenizer = tokenizer_with(marks)
    assert infill_tokens(tokenizer) == marks
    with served_model(tiny_model(tokenizer), tokenizer) as served:
        encoded = encode_prompt(served, InfillPrompt("def f(é", "return 1"))
    first, second, third = tokenizer.convert_tokens_to_ids(list(marks))
    prefix, suffix = tokenizer("def f(é")["input_ids"], tokenizer("return 1")["input_ids"]
    assert encoded.ids == (first, *prefix, second, *suffix, third)
    assert encoded.text == "def f(é"


def test_a_model_without_the_marks_or_with_some_of_them_is_refused_by_name() -> None:
    for marks in ((), FAMILIES[0][:2]):
        tokenizer = tokenizer_with(marks)
        with served_model(tiny_model(tokenizer), tokenizer) as served, pytest.raises(BadRequest) as caught:
            encode_prompt(served, InfillPrompt("a", "b"))
        assert caught.value.param == "suffix"
