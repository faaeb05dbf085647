"""Packages that transformers imports as soon as it finds them, though no model here needs them.

Each is built for one build of torch and fails to import beside another, and `import transformers` with it.
"""

import importlib
import importlib.util
import logging
import sys
from collections.abc import Sequence

_log = logging.getLogger(__name__)

BOUND_TO_TORCH = ("torchaudio", "torchvision")


def hide_unusable(names: Sequence[str] = BOUND_TO_TORCH) -> None:
    """Make those that cannot be imported look as if they were not installed. Before transformers is used."""
    for name in names:
        if name in sys.modules or importlib.util.find_spec(name) is None:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            _log.warning("%s is installed but does not work here, and is left out: %s", name, error)
            for module in [module for module in sys.modules if module.startswith(f"{name}.")]:
                del sys.modules[module]
            sys.modules[name] = None  # type: ignore[assignment]
