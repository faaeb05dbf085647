"""Giving memory back: every step of it, and that none can keep the others from happening."""

import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hf_transformers_backend import heap
from hf_transformers_backend.identity import ModelIdentity
from hf_transformers_backend.model_settings import LoadSettings
from hf_transformers_backend.residency import reclaim

from tests.support.fake_loader import FakeModel, Weights


def model() -> FakeModel:
    return FakeModel(ModelIdentity("org/a"), LoadSettings(), ThreadPoolExecutor(1))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is given back to the system, in order."""
    taken: list[str] = []
    collect = gc.collect
    cuda = SimpleNamespace(is_available=lambda: True, empty_cache=lambda: taken.append("cuda"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(heap, "trim", lambda: taken.append("heap"))
    monkeypatch.setattr(gc, "collect", lambda: (taken.append("garbage"), collect())[1])
    return taken


def test_freeing_closes_what_hangs_on_the_model_then_collects_and_empties_all_caches(
    steps: list[str],
) -> None:
    one = model()
    one.resources.callback(steps.append, "manager")
    weights, executor = weakref.ref(one.weights), one.executor
    handed = [one]
    del one
    assert reclaim.free(handed.pop)
    assert steps == ["manager", "garbage", "cuda", "heap"]
    assert weights() is None
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(print)


def test_weights_in_a_cycle_are_freed(steps: list[str]) -> None:
    one: Any = model()
    one.weights.self = one.weights
    weights, handed = weakref.ref(one.weights), [one]
    del one
    assert reclaim.free(handed.pop)
    assert weights() is None


def test_work_that_runs_on_the_models_thread_ends_before_anything_is_closed() -> None:
    one, go_on = model(), threading.Event()
    order: list[str] = []
    one.executor.submit(lambda: (go_on.wait(20), order.append("work")))
    one.resources.callback(order.append, "closed")
    handed = [one]
    del one
    timer = threading.Timer(0.05, go_on.set)
    timer.start()
    assert reclaim.free(handed.pop)
    assert order == ["work", "closed"]
    timer.join()


def test_a_clean_up_that_fails_keeps_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    one = model()
    one.resources.callback(lambda: 1 / 0)
    weights, handed = weakref.ref(one.weights), [one]
    del one
    assert reclaim.free(handed.pop)
    assert weights() is None
    assert "closing the resources of an unloaded model failed" in caplog.text


def test_a_reference_that_somebody_keeps_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reclaim, "LAST_REFERENCE_SECONDS", 0.05)
    one = model()
    kept, handed = one.weights, [one]
    del one
    assert not reclaim.free(handed.pop)
    assert "something still refers to an unloaded model" in caplog.text
    assert isinstance(kept, Weights)


def test_whoever_comes_second_has_nothing_to_free() -> None:
    assert reclaim.free(lambda: None)


def test_at_the_end_of_the_process_only_what_hangs_on_the_model_is_closed(steps: list[str]) -> None:
    one = model()
    one.resources.callback(steps.append, "manager")
    assert reclaim.free(lambda: one, at_exit=True)
    assert steps == ["manager"]


def test_a_device_that_has_failed_does_not_keep_the_heap(
    steps: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nlong advice")

    monkeypatch.setattr(sys.modules["torch"].cuda, "empty_cache", fail)
    reclaim.release_caches()
    assert steps == ["garbage", "heap"]
    assert "the device's cache cannot be emptied: CUDA error: an illegal memory access" in caplog.text


def test_caches_of_apples_gpu_are_emptied(steps: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: False),
        mps=SimpleNamespace(empty_cache=lambda: steps.append("mps")),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True)),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    reclaim.release_caches()
    assert steps == ["garbage", "mps", "heap"]


def test_names_that_a_load_has_looked_up_do_not_stay_in_the_interpreters_cache(steps: list[str]) -> None:
    # Several, as another look-up may take the place of one.
    names, weights, count = ["_".join(["name", str(n)]) for n in range(5)], Weights(), sys.getrefcount
    before = [count(name) for name in names]
    assert [getattr(weights, name, None) for name in names] == [None] * 5
    assert [count(name) for name in names] != before, "the interpreter keeps some; else this shows nothing"
    reclaim.release_caches()
    assert [count(name) for name in names] == before


def failed_load() -> tuple[BaseException, "weakref.ref[Weights]"]:
    def load() -> None:
        half = Weights()
        references.append(weakref.ref(half))
        raise MemoryError

    references: list[weakref.ref[Weights]] = []
    try:
        try:
            load()
        except MemoryError:
            raise ValueError("memory ran out") from None
    except ValueError as error:
        return error, references[0]


def test_a_failed_load_keeps_nothing_of_what_it_had_loaded() -> None:
    error, half = failed_load()
    assert half() is not None, "the frames of the error before hold it"
    reclaim.forget_frames(error)
    gc.collect()
    assert half() is None
