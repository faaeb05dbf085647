"""The folder of finished models: which recipe makes which, is it current, and its placing in one step.

Standard library only: hack/models asks it before a virtual environment exists.
"""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import recipe

# Model directory -> the modules of this package that make it. A change in any of them makes the model anew.
RECIPES: dict[str, tuple[str, ...]] = {
    "SmolLM2-135M-Instruct": ("packaged",),
    "SmolLM2-135M-Instruct-GGUF": ("packaged",),
    "all-MiniLM-L6-v2": ("packaged",),
    "tiny-random-llama": ("tokenizer", "language"),
    "tiny-random-gpt2": ("tokenizer", "language"),
    "tiny-random-whisper": ("speech",),
    "tiny-random-vision": ("tokenizer", "language", "vision"),
}
STAMP = ".recipe"
_UNFINISHED = ".making-"


def recipe_digest(name: str) -> str:
    """Digest of the source that makes the model `name`."""
    return recipe.digest(*(Path(__file__).parent / f"{module}.py" for module in RECIPES[name]))


def is_current(shelf: Path, name: str) -> bool:
    """True if the model stands complete on the shelf and was made by today's recipe."""
    try:
        return (shelf / name / STAMP).read_text() == recipe_digest(name)
    except OSError:
        return False


@contextmanager
def locked(shelf: Path) -> Iterator[None]:
    """Hold the shelf alone; what a killed run left unfinished is removed first."""
    shelf.mkdir(parents=True, exist_ok=True)
    with (shelf / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for leftover in shelf.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(leftover)
        yield


def place(shelf: Path, name: str, make: Callable[[Path], None]) -> None:
    """Let `make` fill a folder and name it only when it is complete. Call with the shelf locked."""
    unfinished, replaced, final = (
        shelf / f"{_UNFINISHED}{name}",
        shelf / f"{_UNFINISHED}{name}-old",
        shelf / name,
    )
    unfinished.mkdir(mode=0o755)
    make(unfinished)
    (unfinished / STAMP).write_text(recipe_digest(name))
    # safetensors are written for their owner alone; pods read them as another user
    for file in unfinished.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    if final.exists():
        final.rename(replaced)
    unfinished.rename(final)
    shutil.rmtree(replaced, ignore_errors=True)
