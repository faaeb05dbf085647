"""Model folders with code of their own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.models import model_path

_FAULTY = """
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
    return write_model_with_code(folder, "FaultyForCausalLM", _FAULTY.format(fails_at=fails_at))


def write_model_with_code(
    folder: Path, name: str, code: str, generation: Mapping[str, Any] | None = None
) -> str:
    """tiny-random-llama under the class `name` of `code`; `generation` is added to its generation config."""
    original = Path(model_path("tiny-random-llama"))
    folder.mkdir()
    for file in original.iterdir():
        if file.name != "config.json":
            (folder / file.name).symlink_to(file)
    config = json.loads((original / "config.json").read_text())
    config |= {
        "architectures": [name],
        "auto_map": {"AutoModelForCausalLM": f"modeling_own.{name}"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "modeling_own.py").write_text(code)
    if generation:
        own = json.loads((original / "generation_config.json").read_text())
        (folder / "generation_config.json").unlink()
        (folder / "generation_config.json").write_text(json.dumps({**own, **generation}))
    return str(folder)
