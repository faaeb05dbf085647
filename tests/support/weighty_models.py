"""Models whose weights can be seen in a process's memory: random, quick to make, with a real tokenizer."""

import json
import os
import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.support.models import model_path

LAYER_PARAMETERS = 4 * 512 * 512 + 3 * 512 * 2048


def make_weighty_model(folder: Path, megabytes: int, dtype: torch.dtype = torch.float32) -> int:
    """Save a llama with about that many MB of weights and return its bytes on disk."""
    source = model_path("tiny-random-llama")
    config = AutoConfig.from_pretrained(source)
    width = torch.finfo(dtype).bits // 8
    config.update(
        {
            "hidden_size": 512,
            "intermediate_size": 2048,
            "num_attention_heads": 8,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "num_hidden_layers": max(1, megabytes * 1_000_000 // width // LAYER_PARAMETERS),
            "max_position_embeddings": 4096,
        }
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=dtype).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"):
        if (Path(source) / name).exists():
            shutil.copy(Path(source) / name, folder / name)
    # Never says that it is done, so that an answer lasts as long as the request asks for.
    generation = json.loads((folder / "generation_config.json").read_text())
    generation.pop("eos_token_id", None)
    (folder / "generation_config.json").write_text(json.dumps(generation))
    forget_pages(folder)
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def forget_pages(folder: Path) -> None:
    """Take the files out of the page cache, so that the pages are charged to whoever reads them next."""
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
