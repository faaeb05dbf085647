"""Where models are put and what they take there."""

from collections import Counter
from collections.abc import Mapping

import torch


def resolve_device(device: str) -> str:
    """`auto` is left to accelerate only where there are GPUs: on a CPU it might offload weights to disk."""
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "auto"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def bytes_per_device(model: torch.nn.Module) -> Mapping[str, int]:
    """Bytes of parameters and buffers per torch device name; tied weights count once."""
    totals: Counter[str] = Counter()
    seen: set[int] = set()
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in seen and tensor.device.type != "meta":
            seen.add(id(tensor))
            totals[str(tensor.device)] += tensor.numel() * tensor.element_size()
    return dict(totals)
