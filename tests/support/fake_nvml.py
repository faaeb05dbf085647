"""The stand-in NVML: compiles it, and runs Python with the real pynvml against it in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("fake_nvml.c")
BACKEND = Path(__file__).parents[2] / "backend"
GIB = 1024**3
Device = Mapping[str, int | str]


def build_library(folder: Path, *, old_driver: bool = False) -> Path:
    """A folder that holds libnvidia-ml.so.1, for LD_LIBRARY_PATH."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("gcc is missing: install build-essential (apt-get install build-essential)")
    library = folder / "libnvidia-ml.so.1"
    options = ["-DOLD_DRIVER"] if old_driver else []
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *options, "-o", str(library), str(SOURCE)],
        check=True,
        timeout=60,
    )
    return folder


def a100(number: int, used_gib: int = 21, **changes: int | str) -> dict[str, int | str]:
    """A healthy GPU with every sensor."""
    return {
        "total": 40 * GIB,
        "used": used_gib * GIB,
        "utilization": 87,
        "temperature": 68,
        "milliwatts": 312_100,
        "uuid": f"GPU-{number}{number}aa-stand-in",
        "name": "Stand-in A100",
        "instances": 0,
        **changes,
    }


def write_machine(folder: Path, devices: Mapping[str, Device], *, init: int = 0) -> Path:
    """The files that the library answers from; keys are `0`, `1` for GPUs, `0.0`, `0.1` for MIG instances."""
    folder.mkdir(exist_ok=True)
    (folder / "init").write_text(str(init))
    (folder / "count").write_text(str(sum(1 for key in devices if "." not in key)))
    for key, device in devices.items():
        for name, value in device.items():
            (folder / f"{key}.{name}").write_text(str(value))
    return folder


def run_python(
    program: str,
    library: Path | None,
    machine: Path,
    visible: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Any:
    """Run `program`, which prints JSON, against the stand-in; returns what it printed last."""
    environ = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    environ |= {"PYTHONPATH": str(BACKEND), "FAKE_NVML_DIR": str(machine), **(env or {})}
    if library is not None:
        environ["LD_LIBRARY_PATH"] = str(library)
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
