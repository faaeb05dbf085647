"""Understand a text completions body."""

from typing import Any

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.chat import sampling_of, stop_of
from hf_transformers_backend.generation.request import (
    GenerationRequest,
    InfillPrompt,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from hf_transformers_backend.generation.validation import validated
from hf_transformers_backend.schemas.completions import CompletionRequest

MOST_PROMPTS = 128


def understand_completion(body: Any, *, block_unexpected: bool = False) -> GenerationRequest:
    """One or several prompts, each continued on its own. Raises BadRequest naming the field."""
    asked = validated(CompletionRequest, body, block_unexpected=block_unexpected)
    return GenerationRequest(
        model=asked.model,
        prompts=_with_suffix(_prompts(asked.prompt), asked.suffix),
        sampling=sampling_of(asked),
        stop=stop_of(asked),
        max_tokens=asked.max_tokens,
        stream=bool(asked.stream),
        include_usage=bool(asked.stream_options and asked.stream_options.include_usage),
        echo=bool(asked.echo),
    )


def _with_suffix(prompts: tuple[Prompt, ...], suffix: str | None) -> tuple[Prompt, ...]:
    """An empty suffix is none."""
    if not suffix:
        return prompts
    texts = [prompt.text for prompt in prompts if isinstance(prompt, TextPrompt)]
    if len(texts) < len(prompts):
        raise BadRequest("suffix: needs a prompt of text, not of token ids", param="suffix")
    return tuple(InfillPrompt(text, suffix) for text in texts)


def _prompts(prompt: str | list[str] | list[int] | list[list[int]]) -> tuple[Prompt, ...]:
    if isinstance(prompt, str):
        return (TextPrompt(prompt),)
    if not prompt:
        raise BadRequest("prompt: must not be empty", param="prompt")
    if isinstance(prompt[0], int):
        return (TokenPrompt(tuple(prompt)),)
    if len(prompt) > MOST_PROMPTS:
        raise BadRequest(f"prompt: at most {MOST_PROMPTS} prompts in one request", param="prompt")
    empty = next((i for i, one in enumerate(prompt) if not one), None)
    if empty is not None:
        raise BadRequest(f"prompt[{empty}]: must not be empty", param=f"prompt[{empty}]")
    return tuple(TextPrompt(one) if isinstance(one, str) else TokenPrompt(tuple(one)) for one in prompt)
