"""POST /v1/audio/transcriptions."""

from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from hf_transformers_backend.generation.answer_transcription import (
    TEXT_TYPES,
    transcription_json,
    transcription_text,
)
from hf_transformers_backend.generation.audio import decode_audio
from hf_transformers_backend.generation.engines import Engines
from hf_transformers_backend.generation.serving import ServedRequest
from hf_transformers_backend.generation.speech import (
    Transcript,
    check_transcription,
    prompt_tokens,
    sampling_rate,
    transcribe,
)
from hf_transformers_backend.generation.transcription import TranscriptionAsked, understand_transcription
from hf_transformers_backend.request_metrics import RequestMetrics
from hf_transformers_backend.routes.accounting import answer_counted, refusals_counted
from hf_transformers_backend.routes.openapi import INFERENCE, answers, form_body
from hf_transformers_backend.routes.upload_form import read_form
from hf_transformers_backend.schemas.answers import TranscriptionAnswer, VerboseTranscriptionAnswer
from hf_transformers_backend.schemas.media import TranscriptionRequest

if TYPE_CHECKING:
    from hf_transformers_backend.backend import Backend


def add_transcriptions(router: APIRouter, backend: "Backend", engines: Engines) -> None:
    """Sound files to text."""
    metrics = backend.metrics.requests

    @router.post(
        "/audio/transcriptions",
        openapi_extra=form_body(TranscriptionRequest),
        responses=answers(
            VerboseTranscriptionAnswer,
            TranscriptionAnswer,
            refusals=INFERENCE,
            texts=TEXT_TYPES.values(),
        ),
    )
    async def transcriptions(request: Request) -> Response:
        """Write down what is said in a WAV, FLAC, OGG or MP3 file."""
        with refusals_counted(metrics, request.url.path):
            form = await read_form(request)
            asked = understand_transcription(
                form.fields, block_unexpected=backend.settings.block_on_unexpected_fields
            )
        served = ServedRequest(backend.residency, engines, asked.model)
        try:
            work = _answer(served, asked, form.file, metrics)
            return await answer_counted(request, metrics, served, work)
        finally:
            served.close()


async def _answer(
    served: ServedRequest, asked: TranscriptionAsked, data: bytes, metrics: RequestMetrics
) -> Response:
    transcript = await _transcript(served, asked, data)
    metrics.count_tokens(served.label, generated=transcript.generated_tokens)
    return _response(transcript, asked)


async def _transcript(served: ServedRequest, asked: TranscriptionAsked, data: bytes) -> Transcript:
    _, engine, ticket = await served.admit()
    model = engine.served
    rate = sampling_rate(model)
    check_transcription(model, asked)
    prompt = await engine.aside(lambda: prompt_tokens(model, asked))
    samples = await engine.aside(lambda: decode_audio(data, rate))
    return await engine.run(
        ticket, lambda cancellation: transcribe(model, samples, asked, cancellation, prompt), served.begin
    )


def _response(transcript: Transcript, asked: TranscriptionAsked) -> Response:
    if asked.response_format in TEXT_TYPES:
        text = transcription_text(transcript, asked)
        return Response(text, media_type=TEXT_TYPES[asked.response_format])
    return JSONResponse(transcription_json(transcript, asked))
