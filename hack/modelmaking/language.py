"""Tiny random language models: a chat model of the Llama kind, and a GPT-2 without a chat template."""

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from modelmaking.tokenizer import make_tokenizer

# Wider than the default of 0.02: the best token leads clearly, and greedy answers do not hang on rounding.
INITIALIZER_RANGE = 0.3


def make_llama(target: Path) -> None:
    """A chat model with a context of 4096 tokens."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(target)
    tokenizer.save_pretrained(target)


def make_gpt2(target: Path) -> None:
    """A model for plain completion only: no chat template, a context of 512 tokens."""
    tokenizer = make_tokenizer(chat_template=None)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=512,
        n_embd=64,
        n_layer=2,
        n_head=4,
        initializer_range=INITIALIZER_RANGE,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    GPT2LMHeadModel(config).save_pretrained(target)
    tokenizer.save_pretrained(target)
