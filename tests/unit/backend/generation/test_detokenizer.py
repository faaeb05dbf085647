"""Token by token, the text is the same as that of all tokens at once, and characters come out whole."""

from typing import Any

import pytest
from hf_transformers_backend.generation.detokenizer import Detokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from tests.support.tiny_models import byte_tokenizer

BYTES = byte_tokenizer()


def byte_fallback_tokenizer() -> Any:
    """Like SentencePiece: words with a leading mark for space, and single bytes for the rest."""
    words = ["<unk>", "▁a", "▁cat", "s", "."]
    vocabulary = {token: i for i, token in enumerate([*words, *(f"<0x{i:02X}>" for i in range(256))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


FALLBACK = byte_fallback_tokenizer()


def pieces(tokenizer: Any, tokens: list[int]) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special_tokens=True)
    return [*(detokenizer.feed(token) for token in tokens), detokenizer.flush()]


@settings(deadline=None)
@given(st.text(max_size=12))
def test_every_text_comes_through_in_whole_characters(text: str) -> None:
    got = pieces(BYTES, BYTES(text)["input_ids"])
    assert "".join(got) == text
    assert "\ufffd" not in "".join(got).replace(text, "")
    assert not any("\ufffd" in piece for piece in got if "\ufffd" not in text)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(BYTES) - 1), max_size=60))
def test_any_tokens_give_what_decoding_them_at_once_gives(tokens: list[int]) -> None:
    assert "".join(pieces(BYTES, tokens)) == BYTES.decode(tokens, skip_special_tokens=True)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["▁a", "▁cat", "s", ".", "你", "é", "😀"]), max_size=10))
def test_byte_fallback_tokenizers_lose_nothing(words: list[str]) -> None:
    tokens: list[int] = []
    for word in words:
        if word in FALLBACK.get_vocab():
            tokens.append(FALLBACK.convert_tokens_to_ids(word))
        else:
            tokens += [FALLBACK.convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in word.encode()]
    got = pieces(FALLBACK, tokens)
    assert "".join(got) == FALLBACK.decode(tokens)
    assert not any("\ufffd" in piece for piece in got)


def test_an_incomplete_character_at_the_end_is_flushed() -> None:
    tokens = BYTES("é")["input_ids"][:1]
    assert pieces(BYTES, tokens) == ["", "\ufffd"]


@pytest.mark.parametrize("count", [17, 40])
def test_broken_output_is_not_held_for_ever(count: int) -> None:
    broken = BYTES("é")["input_ids"][:1] * count
    got = pieces(BYTES, broken)
    assert any(got[:-1])
    assert "".join(got) == "\ufffd" * count
