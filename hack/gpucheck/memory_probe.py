"""GPU memory as others see it; run by the backend's Python.

Without an argument: one line of JSON with what NVML and CUDA say of the first visible GPU, and what is there.
With one: hold so many bytes of it until stdin ends.
"""

import json
import sys

import torch


def facts() -> dict[str, object]:
    """`gpu` is None where torch sees none; all else in bytes."""
    if not torch.cuda.is_available():
        return {"gpu": None, "torch": torch.__version__}
    import pynvml

    cuda_free, total = torch.cuda.mem_get_info(0)
    pynvml.nvmlInit()
    nvml = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "total": total,
        "cuda_free": cuda_free,
        "nvml_free": int(nvml.free),
        "nvml_used": int(nvml.used),
    }


def main() -> None:
    """See the module."""
    if len(sys.argv) == 1:
        print(json.dumps(facts()), flush=True)
        return
    held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda:0")
    print(held.numel(), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
