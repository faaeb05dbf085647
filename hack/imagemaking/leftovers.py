"""Delete from installed packages what no run of the servers reads: `leftovers.py SITE_PACKAGES`.

Runs inside the image build, before byte code is compiled. It takes whole files and folders, and none
that what is left imports or opens. The packages stay installed, with their metadata.
"""

import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

# Close to these and needed: torch/testing, and the headers and libdevice of triton.
LEFTOVERS = {
    "test suites": ("**/tests", "torch/test", "torch/bin/test_*"),
    "headers and static libraries": ("torch/include", "nvidia/**/include", "**/*.a"),
    "for building against torch": ("torch/share", "torch/bin/protoc*"),
    "declarations for type checkers and Cython": ("**/*.pyi", "**/*.pyx", "**/*.pxd"),
    "what transformers' models are generated from, which it skips when it looks for modules": (
        "transformers/models/*/modular_*.py",
    ),
    "CUDA libraries that no other library links or opens: solvers over several GPUs, a second NVRTC": (
        "nvidia/**/libcusolverMg.so*",
        "nvidia/**/libnvrtc*.alt.so*",
    ),
    "triton's profiler with a CUPTI of its own (torch's is another)": (
        "triton/profiler",
        "triton/_C/libproton.so",
        "triton/backends/nvidia/lib/cupti",
    ),
    "what triton is tested with": ("triton/plugins", "triton/instrumentation", "triton/FileCheck"),
}


def leftovers(packages: Path) -> Iterator[tuple[str, Path]]:
    """What may go, each with the reason."""
    for reason, patterns in LEFTOVERS.items():
        yield from ((reason, path) for pattern in patterns for path in packages.glob(pattern))
    yield from (("bitsandbytes for other devices", path) for path in _foreign_bitsandbytes(packages))


def _foreign_bitsandbytes(packages: Path) -> set[Path]:
    """bitsandbytes has a library per CUDA, and loads torch's or the nearest of the same major version."""
    version = packages / "torch" / "version.py"
    cuda: str | None = runpy.run_path(str(version))["cuda"] if version.exists() else None
    folder = packages / "bitsandbytes"
    kept = {folder / "libbitsandbytes_cpu.so"}
    if cuda is not None:
        fitting = folder / f"libbitsandbytes_cuda{cuda.replace('.', '')}.so"
        similar = folder.glob(f"libbitsandbytes_cuda{cuda.partition('.')[0]}*.so")
        kept |= {fitting} if fitting.exists() else {*similar}
    return {*folder.glob("libbitsandbytes_*.so")} - kept


def _remove(path: Path) -> int:
    """Delete a file or a folder; the bytes freed."""
    if path.is_dir():
        freed = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
        shutil.rmtree(path)
        return freed
    freed = path.lstat().st_size
    path.unlink()
    return freed


def main(packages: Path) -> None:
    """Delete them, and print what each reason freed."""
    freed: dict[str, int] = {}
    for reason, path in list(leftovers(packages)):
        if path.exists():
            freed[reason] = freed.get(reason, 0) + _remove(path)
    for reason, size in freed.items():
        print(f"{size / 1e6:6.1f} MB  {reason}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
