"""A tiny random Llava: CLIP sees, Llama speaks; its processor needs Pillow only."""

from pathlib import Path

import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from modelmaking.language import INITIALIZER_RANGE
from modelmaking.tokenizer import CHAT_TEMPLATE, make_tokenizer

IMAGE = "<image>"
PIXELS, PATCH = 32, 8


def make_llava(target: Path) -> None:
    """Sees each picture as 16 patches of one 32 x 32 image; a context of 4096 tokens."""
    tokenizer = make_tokenizer(IMAGE, chat_template=None)
    torch.manual_seed(0)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=32,
            intermediate_size=64,
            projection_dim=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=PIXELS,
            patch_size=PATCH,
        ),
        text_config=LlamaConfig(
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
        ),
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        vision_feature_layer=-1,
        image_seq_length=(PIXELS // PATCH) ** 2,
    )
    model = LlavaForConditionalGeneration(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(target)
    LlavaProcessor(
        image_processor=CLIPImageProcessorPil(
            size={"shortest_edge": PIXELS}, crop_size={"height": PIXELS, "width": PIXELS}
        ),
        tokenizer=tokenizer,
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        image_token=IMAGE,
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(target)
