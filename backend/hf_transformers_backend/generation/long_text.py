"""Texts much longer than a model can read: found out, or cut, before they are tokenized whole.

Tokenizing takes seconds and hundreds of megabytes for each few megabytes of text, and cannot be stopped.
"""

from typing import Any

PLAIN_CHARACTERS = 8
"""For each token that a model reads: text that is no longer is tokenized whole. Prose has about four."""
_PIECE = 32_768
_SEAM = 16
"""Tokens by which a piece may seem longer than it is within its text: at a cut one token becomes several, and
what a tokenizer takes together (white space, a word that it does not know) is there in each piece.
"""
_UNSETTLED = 128
"""Tokens before a cut that may differ from those of the whole text. A word of WordPiece has up to 100."""


def is_long(text: str, tokens: int) -> bool:
    """Whether a reader of so many tokens should not have it tokenized whole, unseen."""
    return len(text) > tokens * PLAIN_CHARACTERS


def tokens_at_least(tokenizer: Any, text: str, enough: int) -> int:
    """A number of tokens that the text has at the least. It is read no further than to `enough` of them."""
    total = 0
    for start in range(0, len(text), _PIECE):
        total += max(0, _count(tokenizer, text[start : start + _PIECE]) - _SEAM)
        if total >= enough:
            break
    return total


def beginning(tokenizer: Any, text: str, tokens: int) -> str:
    """As much of the text as its first `tokens` tokens need, which are those of the whole text."""
    settled = tokens + _UNSETTLED
    size = settled * PLAIN_CHARACTERS
    while size < len(text):
        begun = text[:size]
        if _count(tokenizer, begun) >= settled:
            return begun
        size *= 2
    return text


def _count(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
