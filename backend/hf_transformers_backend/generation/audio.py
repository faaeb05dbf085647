"""Sound files as they come in an upload: decoded by libsndfile, mixed to mono, resampled."""

import io

import numpy as np
import numpy.typing as npt
import soundfile

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.resampling import resample

MOST_SECONDS = 4 * 3600
"""Longest sound that is decoded; what is longer would take gigabytes as samples."""


def decode_audio(data: bytes, sampling_rate: int) -> npt.NDArray[np.float32]:
    """Mono samples at `sampling_rate` Hz from WAV, FLAC, OGG or MP3 bytes. Blocking. Raises BadRequest."""
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate = file.samplerate
            if file.frames > MOST_SECONDS * rate:
                raise BadRequest(f"file: the sound is longer than {MOST_SECONDS // 3600} hours", param="file")
            samples = file.read(dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, ValueError, OSError) as error:
        raise BadRequest(
            "file: not a sound file that can be decoded; WAV, FLAC, OGG and MP3 are supported", param="file"
        ) from error
    if samples.shape[0] == 0:
        raise BadRequest("file: the sound is empty", param="file")
    if not np.isfinite(samples).all():
        raise BadRequest("file: the sound has samples that are no finite numbers", param="file")
    mono: npt.NDArray[np.float32] = samples.mean(axis=1, dtype=np.float32)
    return np.ascontiguousarray(resample(mono, rate, sampling_rate), dtype=np.float32)
