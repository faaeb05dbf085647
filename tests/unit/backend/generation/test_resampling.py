"""Resampling by torchaudio where there is one that works, else by soxr."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soxr
from hf_transformers_backend.generation import resampling
from hf_transformers_backend.generation.audio import decode_audio
from hf_transformers_backend.generation.resampling import resample
from hf_transformers_backend.optional_packages import hide_unusable

from tests.unit.backend.generation.test_media import sound

SAMPLES = np.sin(np.arange(4000, dtype=np.float32))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Whether torchaudio works is found out once; here anew for each test."""
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "torchaudio"}
    for name in before:
        del sys.modules[name]
    resampling._torchaudio.cache_clear()
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "torchaudio"]:
        del sys.modules[name]
    sys.modules.update(before)
    resampling._torchaudio.cache_clear()


def torchaudio(folder: Path, functional: str, package: str = "") -> None:
    """A torchaudio of the test's own."""
    (folder / "torchaudio").mkdir()
    (folder / "torchaudio" / "__init__.py").write_text(package)
    (folder / "torchaudio" / "functional.py").write_text(functional)


def test_torchaudio_resamples_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torchaudio(tmp_path, "def resample(t, rate, wanted): return t[: t.shape[0] * wanted // rate] * 0 + rate")
    monkeypatch.syspath_prepend(tmp_path)
    hide_unusable()
    got = resample(SAMPLES, 8000, 16000 // 4)
    assert got.dtype == np.float32 and got.shape == (2000,) and set(got) == {8000}
    assert set(decode_audio(sound("WAV", 44100, 2), 16000)) == {44100}


@pytest.mark.parametrize(
    "failure", ["OSError('libc10_cuda.so: cannot open')", "ImportError('x')", "KeyError(1)"]
)
def test_a_torchaudio_that_does_not_import_is_as_good_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: str
) -> None:
    torchaudio(tmp_path, "", f"import torchaudio.functional\nraise {failure}")
    monkeypatch.syspath_prepend(tmp_path)
    hide_unusable()
    assert np.array_equal(resample(SAMPLES, 8000, 16000), soxr.resample(SAMPLES, 8000, 16000))
    assert "torchaudio is installed but does not work here" in caplog.text


def test_without_torchaudio_soxr_resamples_and_nothing_is_done_for_the_same_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torchaudio", None)
    assert np.array_equal(resample(SAMPLES, 8000, 16000), soxr.resample(SAMPLES, 8000, 16000))
    assert resample(SAMPLES, 8000, 8000) is SAMPLES
