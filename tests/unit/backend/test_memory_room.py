"""The memories that a load may use, on this machine and on ones with GPUs."""

import pytest
from hf_transformers_backend import memory_room
from hf_transformers_backend.gpu import GpuMemoryInfo
from hf_transformers_backend.identity import Kind
from hf_transformers_backend.memory_room import measure_rooms
from hf_transformers_backend.settings import load_settings


def gpu(number: int, *, used: int = 30, backend: str = "cuda") -> GpuMemoryInfo:
    return GpuMemoryInfo(number, used_bytes=used, free_bytes=100 - used, total_bytes=100, backend=backend)


LOST = GpuMemoryInfo(2, error="GPU is lost")


def test_a_cpu_server_looks_at_its_ram() -> None:
    (room,) = measure_rooms(load_settings(oom_ram_threshold=100), "cpu", "serve")
    assert (room.device, room.threshold_ratio) == ("cpu", 1.0)
    assert 0 < room.available_bytes <= room.total_bytes
    assert 0 < room.used_bytes < room.total_bytes


@pytest.mark.parametrize("monitor", [False, True])
@pytest.mark.parametrize(("threshold", "fits"), [(0, False), (100, True)])
def test_the_threshold_is_the_limit_with_and_without_the_monitor(
    threshold: float, fits: bool, monitor: bool
) -> None:
    settings = load_settings(oom_monitor=monitor, oom_ram_threshold=threshold)
    (room,) = measure_rooms(settings, "cpu", "serve")
    assert (room.available_bytes > 0) is fits


def test_apples_gpu_takes_from_ram() -> None:
    (room,) = measure_rooms(load_settings(), "mps", "serve")
    assert room.device == "mps"
    assert room.total_bytes > 0


@pytest.mark.parametrize(
    ("device", "kind", "expected"),
    [
        ("auto", "serve", ["cuda:0", "cuda:1"]),
        ("auto", "embedding", ["cuda:0"]),
        ("cuda", "serve", ["cuda:0"]),
        ("cuda:1", "serve", ["cuda:1"]),
        ("cuda:1", "embedding", ["cuda:1"]),
        ("cuda:2", "serve", []),
        ("xpu", "serve", []),
    ],
    ids=[
        "a generator may be spread over all that answer",
        "an encoder is never spread",
        "cuda is the first",
        "one by its number",
        "one by its number for an encoder",
        "a lost one takes nothing",
        "what cannot be measured is unknown",
    ],
)
def test_which_gpus_count(
    monkeypatch: pytest.MonkeyPatch, device: str, kind: Kind, expected: list[str]
) -> None:
    monkeypatch.setattr(memory_room, "get_gpu_info", lambda: [gpu(0), gpu(1), LOST])
    rooms = measure_rooms(load_settings(oom_vram_threshold=80), device, kind)
    assert [room.device for room in rooms] == expected
    assert {room.available_bytes for room in rooms} <= {50}
