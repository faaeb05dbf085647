"""Make the models of the checks: `python -m gpucheck.made_models FOLDER`, run by the backend's Python.

`medium` has random weights of about one GiB in bfloat16. `broken` has fewer embeddings than its tokenizer has
tokens: on a GPU the first prompt is an out-of-range read, after which CUDA answers every call with an error.
"""

import sys
from pathlib import Path

import torch
from modelmaking.tokenizer import make_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

KNOWN_TO_BROKEN = 8


def make_medium(target: Path) -> None:
    """Wide enough for every attention kernel: heads of 64. Where there is no GPU it is a small one."""
    layers, width = (8, 2048) if torch.cuda.is_available() else (2, 256)
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": width // 64}
    _make(target, num_hidden_layers=layers, **sizes)


def make_broken(target: Path) -> None:
    """Tiny, and its tokenizer knows ids that it does not."""
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 1}
    _make(
        target, vocab_size=KNOWN_TO_BROKEN, eos_token_id=None, bos_token_id=None, pad_token_id=None, **sizes
    )


def _make(target: Path, **config: int | None) -> None:
    tokenizer = make_tokenizer()
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        made = {"vocab_size": len(tokenizer), "max_position_embeddings": 4096, **ends, **config}
        model = LlamaForCausalLM(LlamaConfig(dtype="bfloat16", **made)).to(torch.bfloat16)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


def main() -> None:
    """Make both below the folder that is the only argument."""
    folder = Path(sys.argv[1])
    make_medium(folder / "medium")
    make_broken(folder / "broken")


if __name__ == "__main__":
    main()
