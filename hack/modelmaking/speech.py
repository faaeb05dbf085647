"""A tiny random Whisper with a byte-level tokenizer, for the transcription route."""

from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperProcessor,
    WhisperTokenizerFast,
)

END_OF_TEXT, START = "<|endoftext|>", "<|startoftranscript|>"
LANGUAGES = ("<|en|>", "<|de|>")
TASKS = {"transcribe": "<|transcribe|>", "translate": "<|translate|>"}
NO_TIMESTAMPS = "<|notimestamps|>"


def make_whisper(target: Path) -> None:
    """Hears 30 s windows at 16 kHz and answers with up to 20 random tokens."""
    special = [START, *LANGUAGES, *TASKS.values(), NO_TIMESTAMPS]
    vocabulary = {
        token: number
        for number, token in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), END_OF_TEXT, *special])
    }
    tokenizer = WhisperTokenizerFast(vocab=vocabulary, merges=[])
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    end = vocabulary[END_OF_TEXT]
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        num_mel_bins=80,
        max_source_positions=1500,
        max_target_positions=64,
        init_std=0.3,
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=vocabulary[START],
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = GenerationConfig.from_dict(
        {
            "max_length": 20,
            "decoder_start_token_id": vocabulary[START],
            "bos_token_id": end,
            "eos_token_id": end,
            "pad_token_id": end,
            "suppress_tokens": [
                vocabulary[token] for token in special
            ],  # a random model would sprinkle them about
            "is_multilingual": True,
            "no_timestamps_token_id": vocabulary[NO_TIMESTAMPS],
            "lang_to_id": {language: vocabulary[language] for language in LANGUAGES},
            "task_to_id": {task: vocabulary[token] for task, token in TASKS.items()},
        }
    )
    model.save_pretrained(target)
    WhisperProcessor(
        feature_extractor=WhisperFeatureExtractor(feature_size=80), tokenizer=tokenizer
    ).save_pretrained(target)
