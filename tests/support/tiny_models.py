"""Tiny models made in memory: random, or saying what they are told, both through the real `generate`."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
from hf_transformers_backend.upstream.served_model import Modality, ServedModel
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

CONTEXT_TOKENS = 128
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if tools %}TOOLS{% endif %}{% if probe is defined %}PROBE={{ probe }}{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_tokenizer() -> Any:
    """One token for each byte, so that characters beyond ASCII span tokens; special tokens like Qwen's."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        bos_token="<|im_start|>",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


class ScriptedModel(Qwen3ForCausalLM):
    """Random weights; with a script, the next token is the script's next, then the end of sequence."""

    script: tuple[int, ...] | None = None
    fails_at: int | None = None
    step = 0

    def say(self, tokens: list[int]) -> None:
        """What the next generation will answer."""
        self.script, self.step = tuple(tokens), 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        if self.fails_at == self.step:
            raise ZeroDivisionError("a fault of ours")
        if self.script is not None:
            end = self.generation_config.eos_token_id
            token = self.script[self.step] if self.step < len(self.script) else end
            output.logits[:] = -1e4
            output.logits[..., token] = 1e4
        self.step += 1
        return output


def tiny_model(tokenizer: Any, seed: int = 0) -> ScriptedModel:
    """Random, greedy by its own configuration, CONTEXT_TOKENS long."""
    torch.manual_seed(seed)
    model = ScriptedModel(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=16,
            max_position_embeddings=CONTEXT_TOKENS,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
        )
    ).eval()
    model.generation_config.do_sample = False
    return model


@contextmanager
def served_model(model: Any, processor: Any, modality: Modality = Modality.LLM) -> Iterator[ServedModel]:
    """The model as the generation code gets it; its threads end with the block."""
    with ThreadPoolExecutor(1) as executor:
        served = ServedModel(
            model=model,
            processor=processor,
            modality=modality,
            key=f"tiny-{id(model)}",
            executor=executor,
            weights_on={"cpu": 0},
        )
        with served.resources:
            yield served
