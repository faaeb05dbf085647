"""Where models are put and what they take there."""

import mmap
from collections import Counter
from collections.abc import Iterator, Mapping

import torch

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.loader import Progress


def resolve_device(device: str) -> str:
    """A device as torch names it.

    `auto` is left to accelerate only where there are GPUs: on a CPU it might offload weights to disk.
    """
    if device != "auto":
        return f"cuda:{device}" if device.isdigit() else device
    if torch.cuda.is_available():
        return "auto"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check_device(device: str) -> None:
    """Raise BadRequest if this machine has no such device; the message names the flag."""
    kind, _, index = resolve_device(device).partition(":")
    counts = {
        "cuda": torch.cuda.device_count(),
        "xpu": torch.xpu.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if int(index or 0) >= counts.get(kind, 1):
        here = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"
        raise BadRequest(
            f"--device: there is no {device} here (accelerators that torch sees: {here});"
            " use auto or cpu, or give this process the device"
        )


def check_placement(model: torch.nn.Module, device: str) -> None:
    """Raise MemoryError if what was to be on accelerators alone lies partly in RAM or on disk.

    With `auto` accelerate puts there what finds no place, and every token waits for it: a model that is let
    in as one that fits must not crawl instead. Parameters of another place by design are not in its map.
    """
    if device != "auto":
        return
    places = {str(place) for place in getattr(model, "hf_device_map", {}).values()}
    places |= {"cpu"} if all(one.device.type == "cpu" for one in model.parameters()) else set()
    if elsewhere := places & {"cpu", "disk"}:
        raise MemoryError(f"parts of the model found no place but {' and '.join(sorted(elsewhere))}")


def bytes_per_device(model: torch.nn.Module) -> Mapping[str, int]:
    """Bytes of parameters and buffers per torch device name; tied weights count once."""
    totals: Counter[str] = Counter()
    seen: set[int] = set()
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) not in seen and tensor.device.type != "meta":
            seen.add(id(tensor))
            totals[str(tensor.device)] += tensor.numel() * tensor.element_size()
    return dict(totals)


def bring_into_memory(model: torch.nn.Module, progress: Progress) -> None:
    """Read the weights that still lie in mapped files, each page once; `progress` may end it.

    Loaded as they are stored they come into memory with the first request only. Until then the next load
    would be let into memory that is taken, and a bad file would fail a request instead of the load.
    """
    storages = list(_storages(model))
    for storage in storages:
        torch.empty(0, dtype=torch.uint8).set_(storage)[:: mmap.PAGESIZE].sum()
        progress(len(storages), len(storages))


def _storages(model: torch.nn.Module) -> Iterator[torch.UntypedStorage]:
    seen: set[int] = set()
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu" and type(tensor.data) is torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                yield storage
