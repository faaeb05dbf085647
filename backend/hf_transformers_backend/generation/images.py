"""Images that come in a request: where they are, and what they show. No file is read."""

import base64
import binascii
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from PIL import Image

from hf_transformers_backend.errors import BadRequest
from hf_transformers_backend.generation.request import ChatPrompt

MOST_PIXELS = 64_000_000
"""Of all images of one request together; as RGB they take three bytes each."""
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")
"""Read by the library itself; others call programs, or write files."""
_DATA_URI = re.compile(r"data:image/[\w.+-]+(?:;[\w-]+=[\w-]+)*;base64,", re.IGNORECASE)


def image_urls(prompt: ChatPrompt) -> Iterator[tuple[str, str]]:
    """(where, url) of every image part, in the order in which the model will see them."""
    for m, message in enumerate(prompt.messages):
        parts = message.get("content")
        for p, part in enumerate(parts if isinstance(parts, list) else ()):
            if part["type"] in ("image_url", "input_image"):
                url = part["image_url"]
                # Items of other fields have become messages, and no longer have their places.
                place = (
                    f"messages[{m}].content[{p}].image_url" if prompt.where == "messages" else prompt.where
                )
                yield place, url["url"] if isinstance(url, dict) else url


def check_placeholders(prompt: ChatPrompt, processor: Any) -> None:
    """Raises BadRequest where a message's text has what stands for an image or the like in a written prompt:
    the processor would look for one more of them.
    """
    kinds = ("image", "video", "audio")
    marks = {kind: getattr(processor, f"{kind}_token", None) for kind in kinds}
    for m, message in enumerate(prompt.messages):
        place = f"messages[{m}].content" if prompt.where == "messages" else prompt.where
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        for kind, mark in marks.items():
            if mark and any(str(mark) in (part.get("text") or "") for part in parts):
                raise BadRequest(
                    f"{place}: {mark} in a text stands for {kind} input in this model's prompts; leave it"
                    " out, or write it with a space in it (an image is a content part of its own)",
                    param=place,
                )


def decode_images(images: Iterable[tuple[str, str | bytes]]) -> list[Image.Image]:
    """The pictures of one request, from (where, bytes or `data:image/...;base64,` URI), as RGB.

    Raises BadRequest, also for every other address, and where all together have too many pixels.
    """
    pictures: list[Image.Image] = []
    room = MOST_PIXELS
    for where, image in images:
        pictures.append(_decode(image, where, room))
        room -= pictures[-1].width * pictures[-1].height
    return pictures


def _decode(image: str | bytes, where: str, most_pixels: int) -> Image.Image:
    try:
        data = _from_uri(image, where) if isinstance(image, str) else image
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
                if picture.width * picture.height > most_pixels:
                    raise BadRequest(
                        f"{where}: too many pixels; the images of a request may have {MOST_PIXELS} together",
                        param=where,
                    )
                return picture.convert("RGB")
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise BadRequest(f"{where}: the image has too many pixels", param=where) from error
    except (binascii.Error, OSError, ValueError, SyntaxError) as error:
        raise BadRequest(f"{where}: not a readable image", param=where) from error


def _from_uri(uri: str, where: str) -> bytes:
    header = _DATA_URI.match(uri)
    if header is None:
        raise BadRequest(
            f"{where}: an image is a data:image/...;base64,... URI or an http(s) address; no file addresses "
            "and no paths",
            param=where,
        )
    return base64.b64decode(uri[header.end() :], validate=True)
