"""Model folders made for one purpose, beside the small real models and as links to their files.

They stand on the same shelf, so that pods see them under /models as well; `crafted` removes them at the end.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

PREFIX = "e2e-"
_OWN_CODE = '''\
"""A model whose own code takes its time, as a large one does on a slow disk."""

import time

from transformers import LlamaForCausalLM


class PatientForCausalLM(LlamaForCausalLM):
    def __init__(self, config):
        time.sleep({seconds})
        super().__init__(config)
'''


class Crafts:
    """Folders on one shelf; every method returns the folder's path in the pod."""

    def __init__(self, shelf: Path, mounted_at: str = "/models") -> None:
        self._shelf = shelf
        self._mounted_at = mounted_at

    def copy(self, name: str, original: str, config: Mapping[str, Any] | None = None) -> str:
        """The original's files under another name, with some keys of its config.json replaced."""
        folder = self._shelf / f"{PREFIX}{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o755)
        for file in (self._shelf / original).iterdir():
            if file.name != "config.json":
                (folder / file.name).symlink_to(Path("..") / original / file.name)
        content = json.loads((self._shelf / original / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**content, **(config or {})}))
        (folder / "config.json").chmod(0o644)
        return f"{self._mounted_at}/{folder.name}"

    def slow(self, name: str, seconds: float) -> str:
        """A tiny model whose load takes that long; its code has to be trusted."""
        own = {
            "architectures": ["PatientForCausalLM"],
            "auto_map": {"AutoModelForCausalLM": "modeling_patient.PatientForCausalLM"},
        }
        inside = self.copy(name, "tiny-random-llama", own)
        code = self._shelf / f"{PREFIX}{name}" / "modeling_patient.py"
        code.write_text(_OWN_CODE.format(seconds=seconds))
        code.chmod(0o644)
        return inside

    def overgrown(self, name: str, layers: int) -> str:
        """A model whose files lack nearly all weights: they are made up while it loads, 14 MB for each layer,
        and no header tells of them."""
        inside = self.copy(name, "SmolLM2-135M-Instruct", {"num_hidden_layers": layers})
        weights = self._shelf / f"{PREFIX}{name}" / "model.safetensors"
        weights.unlink()
        save_file({"model.norm.weight": np.ones(576, np.float32)}, weights, {"format": "pt"})
        weights.chmod(0o644)
        return inside


@contextlib.contextmanager
def crafted(shelf: Path) -> Iterator[Crafts]:
    """Make folders while the block runs."""
    try:
        yield Crafts(shelf)
    finally:
        for folder in shelf.glob(f"{PREFIX}*"):
            shutil.rmtree(folder, ignore_errors=True)
