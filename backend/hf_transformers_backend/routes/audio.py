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
    sampling_rate,
    transcribe,
)
from hf_transformers_backend.generation.transcription import TranscriptionAsked, understand_transcription
from hf_transformers_backend.routes.disconnect import ClientGone, until_disconnect
from hf_transformers_backend.routes.openapi import form_body
from hf_transformers_backend.routes.refusals import refusals_counted
from hf_transformers_backend.routes.text import CLIENT_CLOSED_REQUEST, status_of
from hf_transformers_backend.routes.upload_form import read_form
from hf_transformers_backend.schemas.media import TranscriptionRequest

if TYPE_CHECKING:
    from hf_transformers_backend.backend import Backend


def add_transcriptions(router: APIRouter, backend: "Backend", engines: Engines) -> None:
    """Sound files to text."""
    metrics = backend.metrics.requests

    @router.post("/audio/transcriptions", openapi_extra=form_body(TranscriptionRequest))
    async def transcriptions(request: Request) -> Response:
        """Write down what is said in a WAV, FLAC, OGG or MP3 file."""
        with refusals_counted(metrics, request.url.path):
            form = await read_form(request)
            asked = understand_transcription(
                form.fields, block_unexpected=backend.settings.block_on_unexpected_fields
            )
        served = ServedRequest(backend.residency, engines, asked.model)
        code = 500
        try:
            transcript = await until_disconnect(request.receive, _transcript(served, asked, form.file))
            metrics.count_tokens(served.label, generated=transcript.generated_tokens)
            code = 200
            return _response(transcript, asked)
        except ClientGone:
            code = CLIENT_CLOSED_REQUEST
            return Response(status_code=code)
        except Exception as error:
            code = status_of(error)
            raise
        finally:
            served.close()
            metrics.observe_request(request.url.path, code, served.label, served.cold, served.seconds)


async def _transcript(served: ServedRequest, asked: TranscriptionAsked, data: bytes) -> Transcript:
    _, engine, ticket = await served.admit()
    model = engine.served
    rate = sampling_rate(model)
    check_transcription(model, asked)
    samples = await engine.aside(lambda: decode_audio(data, rate))
    return await engine.run(
        ticket, lambda cancellation: transcribe(model, samples, asked, cancellation), served.begin
    )


def _response(transcript: Transcript, asked: TranscriptionAsked) -> Response:
    if asked.response_format in TEXT_TYPES:
        text = transcription_text(transcript, asked)
        return Response(text, media_type=TEXT_TYPES[asked.response_format])
    return JSONResponse(transcription_json(transcript, asked))
