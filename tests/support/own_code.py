"""A model folder with code of its own, which fails on purpose."""

import json
from pathlib import Path

from tests.support.models import model_path

_CODE = """
from transformers import LlamaForCausalLM


class FaultyForCausalLM(LlamaForCausalLM):
    def forward(self, *args, **kwargs):
        ids = kwargs.get("input_ids")
        self.steps = 0 if ids is not None and ids.shape[1] > 1 else self.steps + 1
        if self.steps == {fails_at}:
            raise ZeroDivisionError("a fault of this model's code")
        return super().forward(*args, **kwargs)
"""


def write_faulty_model(folder: Path, fails_at: int) -> str:
    """tiny-random-llama that raises ZeroDivisionError when it makes the token `fails_at`, counted from 0."""
    original = Path(model_path("tiny-random-llama"))
    folder.mkdir()
    for file in original.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((original / "config.json").read_text())
    config |= {
        "architectures": ["FaultyForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_faulty.FaultyForCausalLM"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_faulty.py").write_text(_CODE.format(fails_at=fails_at))
    return str(folder)
