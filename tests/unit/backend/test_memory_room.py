"""The memory that a load would land in, as it is on this machine."""

import pytest
from hf_transformers_backend.memory_room import measure_room
from hf_transformers_backend.settings import load_settings


def test_a_cpu_server_looks_at_its_ram() -> None:
    room = measure_room(load_settings(device="cpu"))
    assert room is not None
    assert room.device == "cpu" and room.threshold_ratio is None
    assert 0 < room.available_bytes <= room.total_bytes
    assert 0 < room.used_bytes < room.total_bytes


@pytest.mark.parametrize(("threshold", "fits"), [(0, False), (100, True)])
def test_with_the_monitor_its_threshold_is_the_limit(threshold: float, fits: bool) -> None:
    room = measure_room(load_settings(device="cpu", oom_monitor=True, oom_ram_threshold=threshold))
    assert room is not None
    assert (room.available_bytes > 0) is fits


def test_a_gpu_that_is_not_there_is_unknown() -> None:
    assert measure_room(load_settings(device="mps")) is None
