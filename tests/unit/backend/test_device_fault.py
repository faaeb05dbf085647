"""Which errors of torch are faults that stay, which are memory that ran out, and what a fault does."""

import errno
from typing import Any

import pytest
import torch
from hf_transformers_backend.app import build_app
from hf_transformers_backend.device_fault import DeviceHealth, is_out_of_memory, sticky_fault
from hf_transformers_backend.errors import Unavailable
from hf_transformers_backend.settings import load_settings

ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later"


def coded(message: str, code: int) -> Exception:
    """As torch's C++ side raises it."""
    error = torch.AcceleratorError(message)
    error.error_code = code
    return error


def led_to(cause: BaseException) -> Exception:
    try:
        try:
            raise cause
        except BaseException as first:
            raise ValueError("could not load") from first
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.AcceleratorError(ILLEGAL), "CUDA error: an illegal memory access was encountered"),
        (
            RuntimeError("CUDA error: device-side assert triggered"),
            "CUDA error: device-side assert triggered",
        ),
        (RuntimeError("HIP error: unspecified launch failure"), "HIP error: unspecified launch failure"),
        (coded("CUDA error: something new", 719), "CUDA error: something new"),
        (RuntimeError("CUDA error: misaligned address"), "CUDA error: misaligned address"),
        (led_to(RuntimeError("CUDA error: unknown error")), "CUDA error: unknown error"),
        (coded("CUDA error: invalid configuration argument", 9), None),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), None),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), None),
        (coded("CUDA error: out of memory", 2), None),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), None),
        (RuntimeError("a device-side assert is mentioned, but it is none"), None),
        (ValueError("CUDA error: an illegal memory access was encountered"), None),
        (ZeroDivisionError(), None),
    ],
    ids=lambda value: repr(value)[:70],
)
def test_only_faults_that_stay_are_sticky(error: BaseException, told: str | None) -> None:
    assert sticky_fault(error) == told


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."), True),
        (coded("CUDA error: out of memory", 2), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (led_to(torch.OutOfMemoryError("CUDA out of memory")), True),
        (OSError(errno.ENOENT, "No such file"), False),
        (torch.AcceleratorError(ILLEGAL), False),
        (ValueError("out of memory"), False),
    ],
    ids=lambda value: repr(value)[:70],
)
def test_memory_that_ran_out_is_recognized(error: BaseException, ran_out: bool) -> None:
    assert is_out_of_memory(error) is ran_out


def test_the_torch_of_this_machine_runs_out_of_memory_as_expected() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


def test_the_first_fault_is_kept_and_what_passes_is_none(caplog: pytest.LogCaptureFixture) -> None:
    health = DeviceHealth()
    health.note(torch.OutOfMemoryError("CUDA out of memory"))
    health.check()
    assert health.fault is None
    for message in ("CUDA error: misaligned address", "CUDA error: unknown error"):
        health.note(RuntimeError(message))
    assert health.fault == "CUDA error: misaligned address"
    assert len([record for record in caplog.records if record.levelname == "CRITICAL"]) == 1
    with pytest.raises(Unavailable) as caught:
        health.check()
    assert (caught.value.code, caught.value.retry_after) == ("device_failed", 30.0)


def test_a_fault_fails_liveness_and_readiness() -> None:
    from fastapi.testclient import TestClient

    app: Any = build_app(load_settings(device="cpu"))
    with TestClient(app) as client:
        assert (client.get("/health").status_code, client.get("/v1/flexserv/health").status_code) == (
            200,
            200,
        )
        app.state.backend.health.note(torch.AcceleratorError(ILLEGAL))
        live, ready = client.get("/health"), client.get("/v1/flexserv/health")
        assert (live.status_code, live.json()["reason"]) == (
            500,
            "CUDA error: an illegal memory access was encountered",
        )
        assert (ready.status_code, ready.json()["status"]) == (503, "failed")
        assert client.get("/metrics").status_code == 200
        body = {"messages": [{"role": "user", "content": "hi"}], "model": "org/a"}
        refused = client.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "device_failed")
        load = client.post("/v1/flexserv/models/load", json={"model_id": "org/a"})
        assert (load.status_code, load.json()["error"]["code"]) == (503, "device_failed")
