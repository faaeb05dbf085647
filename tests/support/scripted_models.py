"""Model folders that a server loads like any other, whose weights spell out one answer.

The architecture, the tokenizer and `generate` are the real ones; only the numbers are chosen. What a
language model says depends on its last token alone: each piece of the answer is a token of its own, which
points to the next. A Whisper's answer depends on the position alone.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizerFast,
)
from transformers.convert_slow_tokenizer import bytes_to_unicode

END, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
INFILL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_BYTES = bytes_to_unicode()
_WIDTH = 256


def write_chat_model(folder: Path, answer: str) -> str:
    """A Qwen3 that answers every conversation with `answer`; returns the folder as a model's name."""
    return _write_language_model(folder, answer, after="\n", special=(END, TURN_START, TURN_END))


def write_infill_model(folder: Path, answer: str) -> str:
    """A Qwen3 with fill-in-the-middle tokens that puts `answer` between any prefix and suffix."""
    return _write_language_model(
        folder, answer, after=INFILL[2], special=(END, TURN_START, TURN_END, *INFILL)
    )


def _write_language_model(folder: Path, answer: str, *, after: str, special: Sequence[str]) -> str:
    start = after if after in special else _as_token(after.encode())
    pieces = [_as_token(piece) for piece in split_into_unique(answer.encode(), {after.encode()})]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*special, *alphabet, *pieces]))}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=END,
        additional_special_tokens=list(special[3:]),
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    chain = [vocabulary[token] for token in (start, *pieces, TURN_END)]
    _walking(chain, len(vocabulary), tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def split_into_unique(text: bytes, used: set[bytes]) -> list[bytes]:
    """`text` in short pieces, none of which is in `used` or comes twice; characters may be torn apart."""
    taken, pieces, begin = set(used), list[bytes](), 0
    while begin < len(text):
        ends = (end for end in range(begin + 1, len(text) + 1) if text[begin:end] not in taken)
        end = next(ends, None)
        if end is None:  # the rest is known: it becomes part of the last piece
            begin -= len(pieces.pop())
            end = len(text)
        pieces.append(text[begin:end])
        taken.add(pieces[-1])
        begin = end
    return pieces


def _as_token(piece: bytes) -> str:
    return "".join(_BYTES[byte] for byte in piece)


def _walking(chain: Sequence[int], vocabulary: int, tokenizer: Any) -> Qwen3ForCausalLM:
    """After each token of the chain the next one is by far the most likely."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=_WIDTH,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        embeddings = model.model.embed_tokens.weight.normal_()
        model.lm_head.weight.zero_()
        for token, following in itertools.pairwise(chain):
            model.lm_head.weight[following] += embeddings[token]
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    return model.eval()


WHISPER_LANGUAGES = ("<|en|>", "<|de|>")
SECONDS_PER_STAMP = 0.02


def write_speech_model(
    folder: Path, segments: Sequence[tuple[float, float, str]], language: str = "de"
) -> str:
    """A Whisper with time stamps that hears the same `segments` (start, end, text) in every 30 s.

    `language` is what it detects. Texts are ASCII.
    """
    special = ["<|startoftranscript|>", *WHISPER_LANGUAGES, "<|transcribe|>", "<|translate|>"]
    special.append("<|notimestamps|>")
    stamps = [f"<|{i * SECONDS_PER_STAMP:.2f}|>" for i in range(1501)]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, END, *special])}
    tokenizer = WhisperTokenizerFast(vocab=dict(vocabulary), merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.add_tokens(stamps)
    known = {**vocabulary, **{stamp: len(vocabulary) + i for i, stamp in enumerate(stamps)}}
    assert tokenizer.convert_tokens_to_ids("<|30.00|>") == known["<|30.00|>"]
    said = [
        known[token]
        for start, end, text in segments
        for token in (f"<|{start:.2f}|>", *_as_token(text.encode()), f"<|{end:.2f}|>")
    ]
    script = [known[f"<|{language}|>"], 0, *said, known[END]]
    _reciting(script, known).save_pretrained(folder)
    WhisperProcessor(
        feature_extractor=WhisperFeatureExtractor(feature_size=80), tokenizer=tokenizer
    ).save_pretrained(folder)
    return str(folder)


def _reciting(script: Sequence[int], known: dict[str, int]) -> WhisperForConditionalGeneration:
    """After position p the token script[p] is by far the most likely; from its end on the end of the text."""
    end, longest = known[END], 448
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=len(known),
            d_model=_WIDTH,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=1,
            decoder_attention_heads=1,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            num_mel_bins=80,
            max_target_positions=longest,
            pad_token_id=end,
            bos_token_id=end,
            eos_token_id=end,
            decoder_start_token_id=known["<|startoftranscript|>"],
            suppress_tokens=None,
            begin_suppress_tokens=None,
        )
    )
    with torch.no_grad():
        layer = model.model.decoder.layers[0]
        for linear in (layer.self_attn.out_proj, layer.encoder_attn.out_proj, layer.fc2):
            linear.weight.zero_()
            linear.bias.zero_()
        embeddings = model.model.decoder.embed_tokens.weight.normal_()
        targets = [*script, *[end] * (longest - len(script))]
        model.model.decoder.embed_positions.weight.copy_(10 * embeddings[targets])
    model.generation_config = GenerationConfig.from_dict(
        {
            "max_length": longest,
            "decoder_start_token_id": known["<|startoftranscript|>"],
            "bos_token_id": end,
            "eos_token_id": end,
            "pad_token_id": end,
            "is_multilingual": True,
            "no_timestamps_token_id": known["<|notimestamps|>"],
            "max_initial_timestamp_index": 50,
            "lang_to_id": {language: known[language] for language in WHISPER_LANGUAGES},
            "task_to_id": {task: known[f"<|{task}|>"] for task in ("transcribe", "translate")},
        }
    )
    return model.eval()
