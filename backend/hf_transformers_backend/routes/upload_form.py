"""Read a form with one file; what is in it is understood elsewhere."""

from dataclasses import dataclass

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request

from hf_transformers_backend.errors import BadRequest


@dataclass(frozen=True, slots=True)
class UploadForm:
    """Text fields with all their values, and the bytes of the file."""

    fields: dict[str, list[str]]
    file: bytes


async def read_form(request: Request) -> UploadForm:
    """A multipart form with a `file`. Raises BadRequest."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise BadRequest(
            "send a form with Content-Type: multipart/form-data", code="unsupported_content_type"
        )
    fields: dict[str, list[str]] = {}
    files: list[bytes] = []
    try:
        async with request.form(max_files=1, max_fields=50) as form:
            for name, value in form.multi_items():
                if not isinstance(value, UploadFile):
                    fields.setdefault(name, []).append(value)
                elif name == "file":
                    files.append(await value.read())
    except ClientDisconnect as error:
        raise BadRequest("the request body was cut off") from error
    except (MultiPartException, HTTPException) as error:
        detail = getattr(error, "message", None) or getattr(error, "detail", "")
        raise BadRequest(f"the form cannot be read: {detail}") from error
    if not files:
        raise BadRequest("file: is required, as an uploaded file", param="file")
    if not files[0]:
        raise BadRequest("file: is empty", param="file")
    return UploadForm(fields, files[0])
