"""From a prompt to what the model's `generate` takes: chat template, tokenizer, images, and the context's
limit.

Runs on a thread of its own (see engine), never on the event loop, and touches no weights.
"""

import inspect
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import PreTrainedTokenizerBase, ProcessorMixin

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.images import check_placeholders, decode_images, image_urls
from hf_transformers_backend.generation.infill import infill_text, infill_tokens
from hf_transformers_backend.generation.long_text import is_long, tokens_at_least
from hf_transformers_backend.generation.request import (
    ChatPrompt,
    InfillPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from hf_transformers_backend.upstream.messages import processor_messages, template_variables
from hf_transformers_backend.upstream.served_model import Modality, ServedModel

_log = logging.getLogger(__name__)

RESERVED_TEMPLATE_NAMES = frozenset(
    {
        *inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters,
        *inspect.signature(ProcessorMixin.apply_chat_template).parameters,
        "messages",
        "conversations",
        "generation_indices",
    }
)
"""Names that the template machinery takes for itself; a request may not set them."""


def check_template_names(names: Iterable[str], where: str) -> None:
    """Raises BadRequest for names that a request or a setting may not give to a template."""
    reserved = sorted(RESERVED_TEMPLATE_NAMES.intersection(names))
    if reserved:
        raise BadRequest(
            f"{where}: {', '.join(reserved)} cannot be set here; only variables of the model's own chat "
            "template can",
            param=f"{where}.{reserved[0]}",
        )


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """Token ids, and for models that see the processor's tensors (on the CPU)."""

    ids: tuple[int, ...]
    text: str | None = None
    tensors: Mapping[str, Any] = field(default_factory=dict)


def images_in(served: ServedModel, prompt: Prompt) -> list[tuple[str, str]]:
    """(where, url) of the prompt's images. Raises BadRequest when this model takes none."""
    images = list(image_urls(prompt)) if isinstance(prompt, ChatPrompt) else []
    if images and served.modality is Modality.LLM:
        raise BadRequest(f"{images[0][0]}: this model takes text only", param=images[0][0])
    return images


def encode_prompt(
    served: ServedModel, prompt: Prompt, fetched: Mapping[str, bytes] | None = None
) -> EncodedPrompt:
    """Blocking. `fetched` has the bytes of images that are named by http(s) addresses.

    Raises BadRequest for what this model cannot take, with the numbers where it is too long.
    """
    if served.modality is Modality.STT:
        raise BadRequest(
            "this model transcribes audio and generates no text; use /v1/audio/transcriptions",
            param="model",
        )
    if isinstance(prompt, ChatPrompt):
        encoded = _encode_chat(served, prompt, fetched or {})
    elif isinstance(prompt, TextPrompt):
        encoded = EncodedPrompt(_tokens(served, prompt.text, prompt), text=prompt.text)
    elif isinstance(prompt, InfillPrompt):
        encoded = _encode_infill(served, prompt)
    else:
        encoded = _encode_tokens(served, prompt)
    if not encoded.ids:
        raise BadRequest("the prompt is empty: it has no token", param=prompt.where)
    return encoded


def tokenizer_of(served: ServedModel) -> Any:
    """The tokenizer, alone or inside a multi-modal processor."""
    return getattr(served.processor, "tokenizer", served.processor)


def context_length(served: ServedModel) -> int | None:
    """Most tokens, prompt and answer together, that the model can attend to; None where it has no limit."""
    length = getattr(served.model.config.get_text_config(), "max_position_embeddings", None)
    return length if isinstance(length, int) and length > 0 else None


def room_for_answer(
    served: ServedModel, prompt_tokens: int, where: str, *, at_least: bool = False
) -> int | None:
    """Tokens that the context leaves after the prompt, which the field `where` brought, at least 1; raises
    BadRequest when there are none.
    """
    context = context_length(served)
    if context is None:
        return None
    if prompt_tokens >= context:
        raise BadRequest(
            f"this model's maximum context length is {context} tokens, but the prompt has "
            f"{'at least ' if at_least else ''}{prompt_tokens} tokens, which leaves no room for an answer",
            code="context_length_exceeded",
            param=where,
            context_tokens=context,
            prompt_tokens=prompt_tokens,
        )
    return context - prompt_tokens


def check_tokens(served: ServedModel, tokens: Iterable[int], where: str) -> None:
    """Raises BadRequest for an id that the model does not have."""
    vocabulary = served.model.config.get_text_config().vocab_size
    unknown = next((token for token in tokens if not 0 <= token < vocabulary), None)
    if unknown is not None:
        raise BadRequest(
            f"{where}: token {unknown} is not in the vocabulary (0 to {vocabulary - 1})", param=where
        )


def _tokens(served: ServedModel, text: str, prompt: Prompt, **options: bool) -> tuple[int, ...]:
    _check_length(served, text, prompt)
    ids = tuple(tokenizer_of(served)(text, **options)["input_ids"])
    # A tokenizer may know tokens for which the model has no row.
    check_tokens(served, (max(ids, default=0),), prompt.where)
    return ids


def _check_length(served: ServedModel, text: str, prompt: Prompt) -> None:
    """Raises BadRequest for a text that is far longer than the context."""
    context = context_length(served)
    if context is not None and is_long(text, context):
        tokens = tokens_at_least(tokenizer_of(served), text, context)
        room_for_answer(served, tokens, prompt.where, at_least=True)


def _encode_infill(served: ServedModel, prompt: InfillPrompt) -> EncodedPrompt:
    tokenizer = tokenizer_of(served)
    marks = infill_tokens(tokenizer)
    if marks is None:
        raise BadRequest(
            "suffix: this model has no tokens for filling in the middle; leave it out", param="suffix"
        )
    text = infill_text(marks, prompt.prefix, prompt.suffix)
    return EncodedPrompt(_tokens(served, text, prompt), text=prompt.prefix)


def _encode_tokens(served: ServedModel, prompt: TokenPrompt) -> EncodedPrompt:
    room_for_answer(served, len(prompt.ids), prompt.where)
    check_tokens(served, prompt.ids, "prompt")
    return EncodedPrompt(prompt.ids)


def _encode_chat(served: ServedModel, prompt: ChatPrompt, fetched: Mapping[str, bytes]) -> EncodedPrompt:
    # Every message takes a token at the least, and writing out very many of them takes long.
    room_for_answer(served, len(prompt.messages), prompt.where, at_least=True)
    pictures = decode_images((where, fetched.get(url, url)) for where, url in images_in(served, prompt))
    text = _render(served, prompt)
    if served.modality is Modality.LLM:
        return EncodedPrompt(_tokens(served, text, prompt, add_special_tokens=False), text=text)
    _check_length(served, text, prompt)
    check_placeholders(prompt, served.processor)
    # A template that writes the beginning-of-sequence token itself must not get a second one.
    start = tokenizer_of(served).bos_token
    options = {"add_special_tokens": False} if start is not None and text.startswith(start) else {}
    try:
        tensors = served.processor(
            text=[text], images=[pictures] if pictures else None, return_tensors="pt", **options
        )
    except ValueError as error:
        # Its message may quote the conversation.
        _log.info("the processor refused a conversation (%s)", type(error).__name__)
        raise BadRequest(
            f"{prompt.where}: the model's processor cannot read this conversation; a text in it may have a"
            " token of this model that stands for an image, or a picture a form that the model does not take",
            param=prompt.where,
        ) from None
    ids = tuple(tensors["input_ids"][0].tolist())
    return EncodedPrompt(ids, text=text, tensors=dict(tensors))


def _render(served: ServedModel, prompt: ChatPrompt) -> str:
    source = served.processor if getattr(served.processor, "chat_template", None) else tokenizer_of(served)
    if not getattr(source, "chat_template", None):
        raise BadRequest(
            "this model has no chat template; use /v1/completions",
            param=prompt.where,
            code="no_chat_template",
        )
    messages = [_spoken_role(message) for message in prompt.messages]
    try:
        text: str = source.apply_chat_template(
            processor_messages(messages, served.modality),
            tools=list(prompt.tools) or None,
            add_generation_prompt=True,
            tokenize=False,
            **template_variables(source, prompt.template_kwargs),
        )
    # Templates are programs of the model's author: they raise TemplateError to refuse a conversation, and
    # Python's own errors where a message or a template variable is not what they expect.
    except Exception as error:
        # Its message may quote the conversation.
        _log.info("the chat template refused a conversation (%s)", type(error).__name__)
        raise BadRequest(
            f"{prompt.where}: the model's chat template refuses this conversation: {error}",
            param=prompt.where,
        ) from error
    return text


def _spoken_role(message: dict[str, Any]) -> dict[str, Any]:
    """`developer` is OpenAI's newer word for `system`; templates know the older one."""
    return {**message, "role": "system"} if message["role"] == "developer" else message
