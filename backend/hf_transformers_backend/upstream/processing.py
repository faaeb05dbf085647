"""A model's tokenizer or processor, or an error that says that there is none.

Where the files are missing transformers makes an empty tokenizer for some architectures (5.24), which would
answer nonsense, and raises ValueError or OSError for others.
"""

import logging
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_transformers_backend.errors import Unprocessable
from hf_transformers_backend.identity import ModelIdentity

_log = logging.getLogger(__name__)


def usable_processor(identity: ModelIdentity, load: Callable[[], Any]) -> Any:
    """What `load` gives, with a vocabulary. Raises Unprocessable where the model has none."""
    try:
        processor = load()
    except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        _log.warning("loading the tokenizer or processor of %s: %s", identity, error)
        raise _missing(identity) from None
    check_tokenizer(identity, getattr(processor, "tokenizer", processor))
    return processor


def check_tokenizer(identity: ModelIdentity, tokenizer: Any) -> None:
    """Raises Unprocessable for one that knows no more than its special tokens."""
    if not isinstance(tokenizer, PreTrainedTokenizerBase) or len(tokenizer) <= len(
        tokenizer.all_special_tokens
    ):
        raise _missing(identity)


def _missing(identity: ModelIdentity) -> Unprocessable:
    return Unprocessable(
        f"{identity} has no tokenizer or processor that can be used: its files are missing or damaged; the "
        "server's log says more",
        param="model",
    )
