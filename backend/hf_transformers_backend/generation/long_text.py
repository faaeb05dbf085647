"""Texts much longer than a model can read: found out, or cut, before they are tokenized whole.

Tokenizing takes seconds and hundreds of megabytes for each few megabytes of text, and cannot be stopped.
"""

from typing import Any

PLAIN_CHARACTERS = 8
"""For each token that a model reads: text that is no longer is tokenized whole. Prose has about four."""
_PIECE = 32_768
_UNSETTLED = 128
"""Tokens at a cut that may differ from those of the whole text. WordPiece takes a word of more than 100
characters for one unknown token, and what a cut leaves of it for up to 100.
"""
_SEAM = 2 * _UNSETTLED
"""Tokens by which a piece, cut at both ends, may seem longer than it is within its text."""


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
    """The text, up to where its first `tokens` tokens are those of the whole text for sure.

    Prose is cut soon after them. Where many characters make few tokens (white space, one huge word), all of
    it may be needed and is returned, after up to twice as much was tokenized to find that out.
    """
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
