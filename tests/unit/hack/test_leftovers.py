"""What the image build deletes from the packages, and what lies beside it and stays."""

from pathlib import Path

import pytest
from imagemaking.leftovers import LEFTOVERS, main

GONE = [
    "numpy/_core/tests/test_array.py",
    "torch/test/test_ops.py",
    "torch/bin/test_jit",
    "torch/include/ATen/core/Tensor.h",
    "torch/share/cmake/Torch/TorchConfig.cmake",
    "torch/bin/protoc-3.13.0.0",
    "torch/_C/_VariableFunctions.pyi",
    "nvidia/cu13/include/cuda.h",
    "nvidia/cuda_nvrtc/include/nvrtc.h",
    "nvidia/cu13/lib/libcudart_static.a",
    "nvidia/cu13/lib/libcusolverMg.so.12",
    "nvidia/cu13/lib/libnvrtc.alt.so.13",
    "nvidia/cuda_nvrtc/lib/libnvrtc-builtins.alt.so.12.6",
    "sklearn/tree/_tree.pyx",
    "sklearn/tree/_tree.pxd",
    "transformers/models/qwen3/modular_qwen3.py",
    "triton/_C/libproton.so",
    "triton/backends/nvidia/lib/cupti/libcupti.so.12",
    "triton/profiler/proton.py",
    "triton/plugins/libTritonPluginsTestLib.so",
    "triton/instrumentation/libGPUInstrumentationTestLib.so",
    "triton/FileCheck",
]
KEPT = [
    "numpy/testing/__init__.py",
    "nvidia/cu13/lib/libcupti.so.13",
    "nvidia/cu13/lib/libcusolver.so.12",
    "nvidia/cu13/lib/libnvrtc-builtins.so.13.0",
    "nvidia/cu13/lib/libnvrtc.so.13",
    "sklearn/tree/_tree.cpython-311-x86_64-linux-gnu.so",
    "torch/bin/torch_shm_manager",
    "torch/testing/__init__.py",
    "transformers/convert_slow_tokenizer.py",
    "transformers/models/qwen3/modeling_qwen3.py",
    "triton/_C/libtriton.so",
    "triton/backends/nvidia/include/cuda.h",
    "triton/backends/nvidia/lib/libdevice.10.bc",
]
BITSANDBYTES = ["cpu", "cuda118", "cuda126", "cuda128", "cuda130", "cuda132", "rocm72", "xpu2025"]


def put(folder: Path, *names: str) -> None:
    """Make files of ten bytes."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"0123456789")


def files(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_what_no_run_reads_goes_and_what_lies_beside_it_stays(tmp_path: Path) -> None:
    put(tmp_path, *GONE, *KEPT)
    main(tmp_path)
    assert files(tmp_path) == sorted(KEPT)


def test_every_pattern_of_every_rule_is_met_by_an_example(tmp_path: Path) -> None:
    put(tmp_path, *GONE)
    patterns = [pattern for rule in LEFTOVERS.values() for pattern in rule]
    assert [pattern for pattern in patterns if not any(tmp_path.glob(pattern))] == []


def test_what_was_freed_is_printed_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "numpy/tests/a.py", "numpy/tests/tests/b.py")
    (tmp_path / "numpy/tests/a.py").write_bytes(b"0" * 2_000_000)
    main(tmp_path)
    assert capsys.readouterr().out.split() == ["2.0", "MB", "test", "suites"]


@pytest.mark.parametrize(
    ("torch", "kept"),
    [
        ("cuda: str | None = '13.0'", ["cuda130"]),
        ("cuda = '12.8'", ["cuda128"]),
        ("cuda = '12.9'", ["cuda126", "cuda128"]),
        ("cuda = None", []),
        (None, []),
    ],
)
def test_bitsandbytes_keeps_the_library_that_it_will_load(
    tmp_path: Path, torch: str | None, kept: list[str]
) -> None:
    put(tmp_path, *(f"bitsandbytes/libbitsandbytes_{one}.so" for one in BITSANDBYTES))
    if torch is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/version.py").write_text(torch)
    main(tmp_path)
    left = [name for name in files(tmp_path) if name.startswith("bitsandbytes/")]
    assert left == [f"bitsandbytes/libbitsandbytes_{one}.so" for one in ["cpu", *kept]]
