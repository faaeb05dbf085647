"""Images and sounds in requests: what is decoded, and that nothing is fetched or read from disk."""

import base64
import io
from typing import Any

import numpy as np
import pytest
import soundfile
from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.audio import decode_audio
from hf_transformers_backend.generation.images import MOST_PIXELS, decode_images
from PIL import EpsImagePlugin, Image


def data_uri(form: str = "PNG", size: tuple[int, int] = (4, 3), mode: str = "RGB") -> str:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, form)
    return f"data:image/{form.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


@pytest.mark.parametrize(
    ("form", "mode"), [("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "L"), ("GIF", "P"), ("WEBP", "RGB")]
)
def test_data_uris_become_rgb_pictures(form: str, mode: str) -> None:
    (image,) = decode_images([("here", data_uri(form, mode=mode))])
    assert (image.size, image.mode) == ((4, 3), "RGB")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/x.png",
        "https://example.com/x.png",
        "file:///etc/hostname",
        "/etc/hostname",
        "x.png",
        "",
        "data:text/plain;base64,aGk=",
        "data:image/png,rawbytes",
        "data:image/png;base64,not base64",
        "data:image/png;base64,aGVsbG8=",
        data_uri()[:-40],
    ],
)  # fmt: skip
def test_everything_else_is_refused_by_name(url: str) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_images([("messages[0].content[1].image_url", url)])
    assert caught.value.param == "messages[0].content[1].image_url"


def test_an_image_of_too_many_pixels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(BadRequest, match="too many pixels"):
        decode_images([("here", data_uri())])


def test_the_pixels_of_all_images_of_a_request_are_counted_together() -> None:
    """A picture of one color is some kilobytes in the request, and three bytes a pixel in memory."""
    half = data_uri(size=(MOST_PIXELS // 2 // 1000, 1000), mode="1")
    assert len(half) < 100_000
    assert len(decode_images([("first", half), ("second", half)])) == 2
    with pytest.raises(BadRequest, match=f"too many pixels.*{MOST_PIXELS}") as caught:
        decode_images([("first", half), ("second", half), ("third", data_uri())])
    assert caught.value.param == "third"


def test_a_format_for_which_other_programs_are_called_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_args, **_options: called.append(1))
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    uri = f"data:image/png;base64,{base64.b64encode(script).decode()}"
    with pytest.raises(BadRequest, match="not a readable image"):
        decode_images([("here", uri)])
    assert called == []


def sound(form: str, rate: int, channels: int, seconds: float = 0.5) -> bytes:
    time = np.arange(int(rate * seconds)) / rate
    tone = 0.5 * np.sin(2 * np.pi * 440 * time)
    buffer = io.BytesIO()
    soundfile.write(buffer, np.stack([tone] * channels, axis=1), rate, format=form)
    return buffer.getvalue()


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG", "MP3"])
@pytest.mark.parametrize(("rate", "channels"), [(16000, 1), (44100, 2), (8000, 1)])
def test_any_format_rate_and_channel_count_becomes_mono_at_the_models_rate(
    form: str, rate: int, channels: int
) -> None:
    samples = decode_audio(sound(form, rate, channels), 16000)
    assert samples.dtype == np.float32 and samples.ndim == 1
    assert abs(len(samples) - 8000) < 1700  # lossy formats pad their last frame
    spectrum = np.abs(np.fft.rfft(samples[:8000]))
    assert abs(np.argmax(spectrum) / len(samples[:8000]) * 16000 - 440) < 10


@pytest.mark.parametrize("data", [b"", b"123", b"RIFF....WAVE", b"\x00" * 5000])
def test_what_is_no_sound_is_refused(data: bytes) -> None:
    with pytest.raises(BadRequest) as caught:
        decode_audio(data, 16000)
    assert caught.value.param == "file"


def test_an_empty_sound_is_refused() -> None:
    with pytest.raises(BadRequest, match="empty"):
        decode_audio(sound("WAV", 16000, 1, 0), 16000)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_sound_with_a_sample_that_is_no_number_is_refused(value: float) -> None:
    samples = np.zeros((16000, 2), dtype=np.float32)
    samples[8000, 1] = value
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, 16000, format="WAV", subtype="FLOAT")
    with pytest.raises(BadRequest, match="finite") as caught:
        decode_audio(buffer.getvalue(), 16000)
    assert caught.value.param == "file"


def test_a_sound_that_is_too_long_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr("hf_transformers_backend.generation.audio.MOST_SECONDS", 0.1)
    with pytest.raises(BadRequest, match="longer"):
        decode_audio(sound("WAV", 16000, 1), 16000)
