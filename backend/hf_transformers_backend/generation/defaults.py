"""What the server adds to requests that do not say."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hf_transformers_backend.generation.request import ChatPrompt, Prompt, Sampling
from hf_transformers_backend.settings import Settings


@dataclass(frozen=True, slots=True)
class Defaults:
    """The server's own choices for generating; a request, and what its model was loaded with, win."""

    max_tokens: int | None = None
    seed: int | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    parses_reasoning: bool = True
    static_cache: bool = False

    @classmethod
    def of(cls, settings: Settings) -> "Defaults":
        """`--reasoning` is the last word of the server about thinking."""
        thinking = {"on": {"enable_thinking": True}, "off": {"enable_thinking": False}}
        return cls(
            max_tokens=settings.default_max_tokens,
            seed=settings.default_seed,
            template_kwargs={**(settings.chat_template_kwargs or {}), **thinking.get(settings.reasoning, {})},
            parses_reasoning=settings.reasoning != "off",
            static_cache=settings.compile,
        )

    def prompted(self, prompt: Prompt, models_own: Mapping[str, Any]) -> Prompt:
        """The prompt with template variables: the server's, over them its model's, over them its own. Null is
        absent in each of them.
        """
        if not isinstance(prompt, ChatPrompt):
            return prompt
        layers = (self.template_kwargs, models_own, prompt.template_kwargs)
        merged = {name: value for layer in layers for name, value in layer.items() if value is not None}
        return replace(prompt, template_kwargs=merged)

    def seeded(self, sampling: Sampling) -> Sampling:
        """With the server's seed where the request has none."""
        if sampling.seed is not None or self.seed is None:
            return sampling
        return replace(sampling, seed=self.seed)


NO_DEFAULTS = Defaults()
