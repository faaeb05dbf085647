"""Texts that are much longer than a model can read, with tokenizers of each kind."""

import random
from functools import cache
from typing import Any

import pytest
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.long_text import beginning, is_long, tokens_at_least
from hf_transformers_backend.generation.request import (
    ChatPrompt,
    InfillPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from hf_transformers_backend.generation.template import encode_prompt
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tests.support.models import model_path
from tests.support.tiny_models import CONTEXT_TOKENS, byte_tokenizer, served_model, tiny_model

SIZE = 40_000
_some = random.Random(7)
PROSE = "The cat sat on the mat, and nobody knew why. "
TEXTS = {
    "prose": PROSE * (SIZE // len(PROSE)),
    "eight characters a token": "understanding " + "reading " * (SIZE // 8),
    "a word": "a" * SIZE,
    "white space": " " * SIZE,
    "a word and white space": "word" + " " * SIZE + "word",
    "lines": "\n" * SIZE,
    "unknown": "\U00012345" * SIZE,
    "ideographs": "".join(chr(_some.randint(0x4E00, 0x9FFF)) for _ in range(SIZE)),
    "accents": "e\u0301" * (SIZE // 2),
    "controls": "\x00\u200d" * (SIZE // 2),
    "words of 101 letters": f"{'q' * 101} " * (SIZE // 102),
    # 256 divides the size of a piece: each cut leaves 100 letters of a word before it, and 99 after it.
    "words of 199 letters": ("q" * 99 + " " * 57 + "q" * 100) * 384,
    "marks": "<|im_start|>" * (SIZE // 12),
    "noise": "".join(chr(_some.choice((32, 97, 98, 0xE9, 0x4E2D, 0x1F600))) for _ in range(SIZE)),
}


@cache
def tokenizer_of(kind: str) -> Any:
    if kind == "one byte, one token":
        return byte_tokenizer()
    if kind == "unigram that squeezes white space":
        pieces = [("<unk>", 0.0), *((piece, -2.0) for piece in ("\u2581", "a", "aa", "t", "the", "at", "e"))]
        made = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
        made.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
        )
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    if kind == "one unknown for all that are side by side":
        made = Tokenizer(models.BPE({"<unk>": 0, "a": 1, "t": 2}, [], unk_token="<unk>", fuse_unk=True))
        return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    return AutoTokenizer.from_pretrained(model_path(kind))


KINDS = [
    "SmolLM2-135M-Instruct",
    "all-MiniLM-L6-v2",
    "one byte, one token",
    "unigram that squeezes white space",
    "one unknown for all that are side by side",
]


def ids(tokenizer: Any, text: str, **options: Any) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False, **options)["input_ids"])


@cache
def whole_ids(kind: str, name: str) -> list[int]:
    return ids(tokenizer_of(kind), TEXTS[name])


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_never_said_to_be_longer_than_it_is(kind: str) -> None:
    tokenizer = tokenizer_of(kind)
    for name, text in TEXTS.items():
        whole = len(whole_ids(kind, name))
        least = tokens_at_least(tokenizer, text, len(text) * 10)
        assert 0 <= least <= whole, name
        if name == "prose":
            assert least > 0.9 * whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_beginning_has_the_first_tokens_of_the_whole(kind: str) -> None:
    tokens, tokenizer = 256, tokenizer_of(kind)
    for name, text in TEXTS.items():
        begun = beginning(tokenizer, text, tokens)
        assert text.startswith(begun), name
        assert ids(tokenizer, begun)[:tokens] == whole_ids(kind, name)[:tokens], name
        if name == "prose":
            assert len(begun) < SIZE / 5


class Reading:
    """A tokenizer that counts the characters that it is given, and the conversations."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.characters = self.written = 0

    def apply_chat_template(self, *messages: Any, **options: Any) -> Any:
        self.written += 1
        return self._tokenizer.apply_chat_template(*messages, **options)

    def __call__(self, text: str, **options: Any) -> Any:
        self.characters += len(text)
        return self._tokenizer(text, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


LONG = "hello world " * 200_000
INFILLING = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]


@pytest.mark.parametrize(
    ("prompt", "where"),
    [
        (TextPrompt(LONG), "prompt"),
        (TextPrompt("a" * len(LONG)), "prompt"),
        (InfillPrompt("a", LONG), "prompt"),
        (ChatPrompt(({"role": "user", "content": LONG},)), "messages"),
        (ChatPrompt(({"role": "user", "content": "hello"},) * 20_000), "messages"),
        (TokenPrompt((10**9,) * CONTEXT_TOKENS), "prompt"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Prompt) else None,
)
def test_a_prompt_far_beyond_the_context_is_refused_before_it_is_read(prompt: Prompt, where: str) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": INFILLING})
    with served_model(tiny_model(tokenizer), Reading(tokenizer)) as served:
        with pytest.raises(BadRequest, match=f"context length is {CONTEXT_TOKENS} tokens") as caught:
            encode_prompt(served, prompt)
        assert served.processor.characters < 100_000
        assert served.processor.written == (isinstance(prompt, ChatPrompt) and len(prompt.messages) == 1)
    error = caught.value
    assert (error.code, error.param) == ("context_length_exceeded", where)
    assert error.details["context_tokens"] == CONTEXT_TOKENS <= error.details["prompt_tokens"]
    assert ("at least" in error.message) is not isinstance(prompt, TokenPrompt)


def test_what_is_long_and_has_few_tokens_is_read() -> None:
    tokenizer = tokenizer_of("unigram that squeezes white space")
    text = "the" + " " * SIZE + "the"
    assert is_long(text, CONTEXT_TOKENS)
    with served_model(tiny_model(byte_tokenizer()), tokenizer) as served:
        assert encode_prompt(served, TextPrompt(text)).ids == tuple(ids(tokenizer, text))
