"""Where the small real models are."""

import os
from pathlib import Path

import pytest


def models_folder() -> Path:
    """$FLEXSERV_TEST_MODELS, else `models` in the project's cache."""
    cache = Path(os.environ.get("FLEXSERV_CACHE") or Path.home() / ".cache" / "flexserv")
    return Path(os.environ.get("FLEXSERV_TEST_MODELS") or cache / "models")


def model_path(name: str) -> str:
    """The folder of one model. A missing one fails the test where CI=true and skips it elsewhere."""
    path = models_folder() / name
    if not path.is_dir():
        message = f"there is no {path}; make it with hack/models"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return str(path)
