"""Chat messages in the shape that processors and chat templates take, by upstream's conversion.

Upstream drops the reasoning of earlier turns and the names of speakers, which templates may print: they
are put back.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from transformers import ProcessorMixin
from transformers.cli.serving.utils import BaseHandler, Modality
from transformers.utils.chat_template_utils import _get_template_variables

_KEPT = ("name", "reasoning_content")


def processor_messages(messages: Sequence[dict[str, Any]], modality: Modality) -> list[dict[str, Any]]:
    """Convert validated OpenAI messages.

    Text parts are joined for text models, image parts become `{"type": "image"}`.
    """
    converted: list[dict[str, Any]] = BaseHandler.get_processor_inputs_from_messages(list(messages), modality)
    for message, result in zip(messages, converted, strict=True):
        result.update({key: message[key] for key in _KEPT if message.get(key) is not None})
        if isinstance(result["content"], list):
            result["content"] = [
                {"type": "image"} if part["type"] == "image" else part for part in result["content"]
            ]
    return converted


def template_variables(source: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What of `given` to hand to the `apply_chat_template` of a tokenizer or processor.

    A processor takes what its template does not print for its own arguments, and complains about each in the
    log.
    """
    if not isinstance(source, ProcessorMixin):
        return dict(given)
    printed = _get_template_variables(source._resolve_chat_template(None))
    return {name: value for name, value in given.items() if name in printed}
