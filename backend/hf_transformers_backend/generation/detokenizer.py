"""Turn token ids into text as they come, without losing or breaking a character.

A character may span several tokens, so text that ends in U+FFFD is held until it is complete. Works with
every tokenizer because it only calls `decode`, over a short window of recent tokens (their neighbors
decide about spaces).
"""

from typing import Any

_REPLACEMENT = "\ufffd"
_MOST_HELD = 16
"""Tokens after which an incomplete character is taken for broken output and shown as it is."""


class Detokenizer:
    """Incremental decoding.

    The concatenation of all `feed` and the final `flush` is `decode` of all tokens.
    """

    def __init__(self, tokenizer: Any, *, skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._window: list[int] = []
        self._context = 0  # tokens at the window's start whose text is out already
        self._shown = 0  # characters of the window's text that are out already

    def feed(self, token: int) -> str:
        """The new complete text that `token` brings; often empty within a character."""
        self._window.append(token)
        text = self._decode(self._window)
        complete = text.rstrip(_REPLACEMENT)
        held = len(self._window) - self._context
        if len(complete) < len(text) and held > _MOST_HELD:
            complete = text[:-1]
        new = complete[self._shown :]
        self._shown = max(self._shown, len(complete))
        if len(complete) == len(text) and new:
            self._slide()
        return new

    def flush(self) -> str:
        """The rest, incomplete characters included."""
        text = self._decode(self._window)
        new = text[self._shown :]
        self._shown = len(text)
        return new

    def _slide(self) -> None:
        """Forget tokens that can no longer influence the text, keeping those of the last step as context."""
        self._window = self._window[self._context :]
        self._context = len(self._window)
        self._shown = len(self._decode(self._window))

    def _decode(self, tokens: list[int]) -> str:
        text: str = self._tokenizer.decode(tokens, skip_special_tokens=self._skip_special_tokens)
        return text
