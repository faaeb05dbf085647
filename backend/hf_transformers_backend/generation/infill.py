"""Fill in the middle: the text between a prefix and a suffix, by models that were trained for it.

Such models mark the three places with special tokens of their own; the families here write prefix, suffix and
middle in this order.
"""

from typing import Any, NamedTuple


class InfillTokens(NamedTuple):
    """The marks of one family of models."""

    prefix: str
    suffix: str
    middle: str


FAMILIES = (
    InfillTokens("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen coder, CodeGemma
    InfillTokens("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite, StableCode
    InfillTokens("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    InfillTokens("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # noqa: RUF001 (DeepSeek Coder)
)


def infill_tokens(tokenizer: Any) -> InfillTokens | None:
    """The marks that this tokenizer has, None if it has none."""
    known = set(tokenizer.get_added_vocab()) | set(tokenizer.all_special_tokens)
    return next((family for family in FAMILIES if known.issuperset(family)), None)


def infill_text(marks: InfillTokens, prefix: str, suffix: str) -> str:
    """What the model continues with the middle."""
    return f"{marks.prefix}{prefix}{marks.suffix}{suffix}{marks.middle}"
