"""Answer in the forms of the transcriptions API: JSON, plain text, subtitles."""

import zlib
from typing import Any

from hf_transformers_backend.generation.speech import Segment, Transcript
from hf_transformers_backend.generation.transcription import TranscriptionAsked

Json = dict[str, Any]


def transcription_json(transcript: Transcript, asked: TranscriptionAsked) -> Json:
    """For json and verbose_json."""
    usage = {"type": "duration", "seconds": transcript.seconds}
    if asked.response_format == "json":
        return {"text": transcript.text, "usage": usage}
    verbose: Json = {
        "task": "transcribe",
        "language": transcript.language or "unknown",
        "duration": transcript.seconds,
        "text": transcript.text,
        "usage": usage,
    }
    if transcript.segments is not None:
        verbose["segments"] = [_segment(i, s, asked) for i, s in enumerate(transcript.segments)]
    return verbose


def transcription_text(transcript: Transcript, asked: TranscriptionAsked) -> str:
    """For text, srt and vtt."""
    if asked.response_format == "text":
        return f"{transcript.text}\n"
    segments = transcript.segments or ()
    if asked.response_format == "vtt":
        return "WEBVTT\n\n" + "".join(f"{_span(s, '.')}\n{s.text.strip()}\n\n" for s in segments)
    return "".join(f"{i}\n{_span(s, ',')}\n{s.text.strip()}\n\n" for i, s in enumerate(segments, start=1))


TEXT_TYPES = {"text": "text/plain", "srt": "application/x-subrip", "vtt": "text/vtt"}


def _span(segment: Segment, decimal_mark: str) -> str:
    return f"{_clock(segment.start, decimal_mark)} --> {_clock(segment.end, decimal_mark)}"


def _clock(seconds: float, decimal_mark: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, milliseconds = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    whole, milliseconds = divmod(milliseconds, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{decimal_mark}{milliseconds:03}"


def _segment(index: int, segment: Segment, asked: TranscriptionAsked) -> Json:
    text = segment.text.encode()
    return {
        "id": index,
        "seek": round(segment.start * 100),
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": asked.temperature,
        "compression_ratio": len(text) / len(zlib.compress(text)) if text else 0.0,
    }
