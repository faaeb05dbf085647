"""From one sampling rate to another: by torchaudio where it is installed and works, else by soxr."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import soxr


def resample(samples: npt.NDArray[np.float32], rate: int, wanted: int) -> npt.NDArray[np.float32]:
    """Mono `samples` at `rate` Hz as they sound at `wanted` Hz. Blocking."""
    if rate == wanted:
        return samples
    functional = _torchaudio()
    if functional is None:
        resampled: npt.NDArray[np.float32] = soxr.resample(samples, rate, wanted)
        return resampled
    import torch

    return np.asarray(functional.resample(torch.from_numpy(samples), rate, wanted).numpy(), dtype=np.float32)


@cache
def _torchaudio() -> Any:
    """torchaudio.functional, or None."""
    try:
        from torchaudio import functional  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return functional
