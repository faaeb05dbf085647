"""GPUs through the real pynvml against a stand-in driver library, and Apple's through a fake torch."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hf_transformers_backend import backend_server
from hf_transformers_backend.gpu import CudaDevice, GpuMemoryInfo, as_cuda_sees, read_cuda, read_mps

from tests.support.fake_nvml import GIB, Device, a100, build_library, run_python, write_machine

GPU_DICTS = """
import json
from hf_transformers_backend import resource_metrics as r
print(json.dumps({"gpus": [g.to_dict() for g in r.get_gpu_info()], "max": r.get_max_vram_used_pct()}))
"""
IDENTITIES = """
import json
from hf_transformers_backend import resource_metrics as r
print(json.dumps([[g.device, g.uuid, g.is_mig] for g in r.get_gpu_info()]))
"""


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


def test_a_gpu_is_told_in_the_words_and_roundings_of_the_endpoint(nvml: Path, tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {"0": a100(0)})
    assert run_python(GPU_DICTS, nvml, machine) == {
        "gpus": [
            {
                "gpu_id": 0,
                "used_percentage": 52.5,
                "used_gb": 21.0,
                "free_gb": 19.0,
                "total_gb": 40.0,
                "gpu_utilization_percentage": 87.0,
                "temperature_celsius": 68.0,
                "power_watts": 312.1,
            }
        ],
        "max": 52.5,
    }


def test_an_older_driver_still_tells_the_temperature(tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {"0": a100(0)})
    found = run_python(GPU_DICTS, build_library(tmp_path, old_driver=True), machine)
    assert found["gpus"][0]["temperature_celsius"] == 68.0


def test_without_a_driver_library_there_is_no_gpu_and_no_error(tmp_path: Path) -> None:
    assert run_python(GPU_DICTS, None, tmp_path) == {"gpus": [], "max": 0.0}


@pytest.mark.parametrize("init", [0, 9], ids=["no device", "driver not loaded"])
def test_a_driver_without_gpus_means_none(nvml: Path, tmp_path: Path, init: int) -> None:
    machine = write_machine(tmp_path / "machine", {}, init=init)
    assert run_python(GPU_DICTS, nvml, machine) == {"gpus": [], "max": 0.0}


def test_the_fullest_of_eight_gpus_counts(nvml: Path, tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {str(n): a100(n, used_gib=4 * n) for n in range(8)})
    found = run_python(GPU_DICTS, nvml, machine)
    assert [gpu["gpu_id"] for gpu in found["gpus"]] == list(range(8))
    assert found["max"] == 70.0


def test_sensors_that_a_gpu_lacks_are_left_out(nvml: Path, tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {"0": {"total": 8 * GIB, "used": 2 * GIB}})
    assert run_python(GPU_DICTS, nvml, machine)["gpus"] == [
        {"gpu_id": 0, "used_percentage": 25.0, "used_gb": 2.0, "free_gb": 6.0, "total_gb": 8.0}
    ]


def test_a_lost_gpu_is_reported_and_the_others_are_still_read(nvml: Path, tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {"0": a100(0, error=15), "1": a100(1, used_gib=10)})
    found = run_python(GPU_DICTS, nvml, machine)
    lost, healthy = found["gpus"]
    assert lost.keys() == {"gpu_id", "error"}
    assert lost["error"]
    assert healthy["used_gb"] == 10.0
    assert found["max"] == 25.0


def test_a_gpu_that_is_lost_while_we_run_is_reported_from_then_on(nvml: Path, tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {"0": a100(0)})
    program = """
import json, os, pathlib
from hf_transformers_backend import resource_metrics as r
before = r.get_gpu_info()[0].error
lost = pathlib.Path(os.environ["FAKE_NVML_DIR"], "0.error")
lost.write_text("15")
during = r.get_gpu_info()[0].error
lost.unlink()
print(json.dumps([before, during, r.get_gpu_info()[0].error]))
"""
    before, during, after = run_python(program, nvml, machine)
    assert (before, after) == (None, None)
    assert during


def test_a_driver_that_fails_is_an_error_to_the_collector_and_no_gpu_to_the_endpoint(
    nvml: Path, tmp_path: Path
) -> None:
    machine = write_machine(tmp_path / "machine", {"0": a100(0)}, init=18)
    program = """
import json
from hf_transformers_backend import resource_metrics as r
try:
    r.machine.read_gpus()
    failure = None
except r.GpuProbeError as error:
    failure = str(error)
print(json.dumps([r.get_gpu_info(), failure]))
"""
    gpus, failure = run_python(program, nvml, machine)
    assert gpus == []
    assert failure.startswith("NVML: ")


@dataclass(frozen=True)
class Visibility:
    setting: str | None
    gpus: list[str]


@pytest.mark.parametrize(
    "case",
    [
        Visibility(None, ["GPU-00aa-stand-in", "GPU-11aa-stand-in", "GPU-22aa-stand-in"]),
        Visibility("1", ["GPU-11aa-stand-in"]),
        Visibility("2,0", ["GPU-22aa-stand-in", "GPU-00aa-stand-in"]),
        Visibility("GPU-22aa-stand-in", ["GPU-22aa-stand-in"]),
        Visibility("GPU-1", ["GPU-11aa-stand-in"]),
        Visibility("GPU-", []),
        Visibility("0, 1", ["GPU-00aa-stand-in", "GPU-11aa-stand-in"]),
        Visibility("0,7,1", ["GPU-00aa-stand-in"]),
        Visibility("1,-1,0", ["GPU-11aa-stand-in"]),
        Visibility("-1", []),
        Visibility("", []),
        Visibility("NoDevFiles", []),
        Visibility("1,1", []),
    ],
    ids=lambda case: repr(case.setting),
)
def test_only_visible_gpus_are_counted_and_in_the_order_of_cuda(
    nvml: Path, tmp_path: Path, case: Visibility
) -> None:
    machine = write_machine(tmp_path / "machine", {str(n): a100(n) for n in range(3)})
    found = run_python(IDENTITIES, nvml, machine, case.setting)
    assert found == [[f"cuda:{n}", uuid, False] for n, uuid in enumerate(case.gpus)]


SPLIT: dict[str, Device] = {
    "0": a100(0, instances=2),
    "0.0": {"total": 5 * GIB, "used": 4 * GIB, "uuid": "MIG-first", "name": "MIG 1g.5gb"},
    "0.1": {"total": 20 * GIB, "used": 2 * GIB, "uuid": "MIG-second", "name": "MIG 3g.20gb"},
    "1": a100(1),
}


@pytest.mark.parametrize(
    ("setting", "uuids"),
    [
        (None, ["MIG-first", "MIG-second", "GPU-11aa-stand-in"]),
        ("MIG-second", ["MIG-second"]),
        ("0", ["MIG-first", "MIG-second"]),
        ("1", ["GPU-11aa-stand-in"]),
    ],
)
def test_of_a_split_gpu_its_instances_are_the_devices(
    nvml: Path, tmp_path: Path, setting: str | None, uuids: list[str]
) -> None:
    found = run_python(IDENTITIES, nvml, write_machine(tmp_path / "machine", SPLIT), setting)
    assert [uuid for _, uuid, _ in found] == uuids
    assert [is_mig for _, _, is_mig in found] == [uuid.startswith("MIG") for uuid in uuids]


def test_the_memory_of_an_instance_is_its_own_and_not_the_whole_gpus(nvml: Path, tmp_path: Path) -> None:
    found = run_python(GPU_DICTS, nvml, write_machine(tmp_path / "machine", SPLIT), "MIG-first")
    assert found["gpus"] == [
        {"gpu_id": 0, "used_percentage": 80.0, "used_gb": 4.0, "free_gb": 1.0, "total_gb": 5.0}
    ]


def test_a_gpu_that_this_process_may_not_open_is_not_there(nvml: Path, tmp_path: Path) -> None:
    """A container sees the count of the whole node, and may open those that it was given."""
    machine = write_machine(tmp_path / "machine", {"0": a100(0, handle=4), "1": a100(1), "2": a100(2)})
    uuids = [uuid for _, uuid, _ in run_python(IDENTITIES, nvml, machine)]
    assert uuids == ["GPU-11aa-stand-in", "GPU-22aa-stand-in"]
    assert run_python(IDENTITIES, nvml, machine, "1") == [["cuda:0", "GPU-22aa-stand-in", False]]


def test_a_gpu_that_is_lost_before_it_is_opened_is_reported(nvml: Path, tmp_path: Path) -> None:
    machine = write_machine(tmp_path / "machine", {"0": a100(0, handle=15), "1": a100(1)})
    lost, healthy = run_python(GPU_DICTS, nvml, machine)["gpus"]
    assert lost.keys() == {"gpu_id", "error"}
    assert healthy["total_gb"] == 40.0


@pytest.mark.parametrize("runtime", ["void", "0"])
def test_what_the_container_runtime_was_asked_for_changes_nothing_that_nvml_shows(
    nvml: Path, tmp_path: Path, runtime: str
) -> None:
    machine = write_machine(tmp_path / "machine", {"0": a100(0), "1": a100(1)})
    environ = {"NVIDIA_VISIBLE_DEVICES": runtime}
    found = run_python(IDENTITIES, nvml, machine, "1", environ)
    assert found == [["cuda:0", "GPU-11aa-stand-in", False]]


def nvml_gpu(number: int, used: int, total: int, uuid: str | None = None) -> GpuMemoryInfo:
    return GpuMemoryInfo(
        number, used * GIB, (total - used) * GIB, total * GIB, uuid=uuid or f"GPU-{number}{number}AA"
    )


def test_the_total_is_the_smaller_of_nvmls_and_cudas_and_the_numbers_add_up() -> None:
    cuda = [CudaDevice("00aa", free_bytes=30 * GIB, total_bytes=39 * GIB)]
    (gpu,) = as_cuda_sees([nvml_gpu(0, 10, 40)], cuda)
    assert (gpu.used_gb, gpu.free_gb, gpu.total_gb, gpu.used_percentage) == (9.0, 30.0, 39.0, 23.1)


@pytest.mark.parametrize(
    "cuda",
    [
        [],
        [CudaDevice("00aa")],
        [CudaDevice("00aa", 30 * GIB, 40 * GIB)],
        [CudaDevice("00aa", 50 * GIB, 60 * GIB)],
        [CudaDevice("99aa", 1 * GIB, 2 * GIB)],
    ],
    ids=["not in use", "not opened", "as large", "larger", "another device"],
)
def test_nvmls_numbers_stand_where_cuda_has_no_smaller_ones(cuda: list[CudaDevice]) -> None:
    assert as_cuda_sees([nvml_gpu(0, 10, 40)], cuda) == [nvml_gpu(0, 10, 40)]


def test_devices_are_numbered_as_cuda_does() -> None:
    cuda = [CudaDevice("11aa"), CudaDevice("00aa", 5 * GIB, 8 * GIB)]
    seen = as_cuda_sees([nvml_gpu(0, 5, 10), nvml_gpu(1, 1, 10)], cuda)
    assert [(gpu.device, gpu.uuid, gpu.total_gb) for gpu in seen] == [
        ("cuda:0", "GPU-11AA", 10.0),
        ("cuda:1", "GPU-00AA", 8.0),
    ]


def test_the_instance_of_a_split_gpu_is_found_by_its_own_uuid() -> None:
    instance = nvml_gpu(0, 1, 5, uuid="MIG-abcd")
    (seen,) = as_cuda_sees([instance], [CudaDevice("abcd", 3 * GIB, 4 * GIB)])
    assert (seen.total_gb, seen.free_gb) == (4.0, 3.0)


def fake_cuda(*, initialized: bool = True, reserved: int = 1, broken: bool = False) -> Any:
    def mem_get_info(ordinal: int) -> tuple[int, int]:
        if broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return 3, 7

    cuda = SimpleNamespace(
        is_initialized=lambda: initialized,
        device_count=lambda: 1,
        get_device_properties=lambda ordinal: SimpleNamespace(uuid="0aa"),
        memory_reserved=lambda ordinal: reserved,
        mem_get_info=mem_get_info,
    )
    return SimpleNamespace(cuda=cuda)


def test_cuda_is_asked_only_about_devices_that_this_process_uses_already() -> None:
    assert read_cuda(fake_cuda(initialized=False)) == []
    assert read_cuda(fake_cuda(reserved=0)) == [CudaDevice("0aa")]
    assert read_cuda(fake_cuda()) == [CudaDevice("0aa", 3, 7)]
    assert read_cuda(fake_cuda(broken=True)) == []


def test_cudas_view_reaches_the_reading_of_the_machine(nvml: Path, tmp_path: Path) -> None:
    program = """
import json
from types import SimpleNamespace as S
from hf_transformers_backend import resource_metrics as r
cuda = S(
    is_initialized=lambda: True,
    device_count=lambda: 1,
    memory_reserved=lambda i: 1,
    get_device_properties=lambda i: S(uuid="00aa-stand-in"),
    mem_get_info=lambda i: (10 * 2**30, 30 * 2**30),
)
machine = r.Machine(cuda=lambda: S(cuda=cuda))
print(json.dumps([g.to_dict() for g in machine.read_gpus()]))
"""
    (gpu,) = run_python(program, nvml, write_machine(tmp_path / "machine", {"0": a100(0)}))
    assert (gpu["used_gb"], gpu["free_gb"], gpu["total_gb"]) == (20.0, 10.0, 30.0)


def test_the_server_lets_cuda_number_devices_as_nvml_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "to be restored")
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    for name in ("leave_when_told", "configure_logging"):
        monkeypatch.setattr(backend_server, name, lambda *_: None)
    monkeypatch.setattr(backend_server, "serve", lambda settings, listener: listener.close() or 0)
    assert backend_server.main(["--port", "0", "--device", "cpu"]) == 0
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def fake_torch(*, available: bool, allocated: int = 0, driver: int = 0) -> Any:
    return SimpleNamespace(
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: available)),
        mps=SimpleNamespace(
            current_allocated_memory=lambda: allocated, driver_allocated_memory=lambda: driver
        ),
    )


def test_apples_gpu_tells_what_tensors_take_of_what_the_driver_gave() -> None:
    (gpu,) = read_mps(fake_torch(available=True, allocated=3 * GIB, driver=4 * GIB))
    assert gpu.device == "mps"
    assert gpu.to_dict() == {
        "gpu_id": 0,
        "used_percentage": 75.0,
        "used_gb": 3.0,
        "free_gb": 1.0,
        "total_gb": 4.0,
    }


def test_a_torch_without_apples_gpu_shows_none() -> None:
    assert read_mps(fake_torch(available=False)) == []


def test_an_apple_gpu_that_nothing_was_put_on_is_at_zero() -> None:
    (gpu,) = read_mps(fake_torch(available=True))
    assert gpu.used_percentage == 0.0
