"""Images that come in a request, as data: URIs. Nothing is fetched and no file is read."""

import base64
import binascii
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from PIL import Image

from hf_transformers_backend.errors import BadRequest

_DATA_URI = re.compile(r"data:image/[\w.+-]+(?:;[\w-]+=[\w-]+)*;base64,", re.IGNORECASE)


def image_urls(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """(where, url) of every image part, in the order in which the model will see them."""
    for m, message in enumerate(messages):
        parts = message.get("content")
        for p, part in enumerate(parts if isinstance(parts, list) else ()):
            if part["type"] in ("image_url", "input_image"):
                url = part["image_url"]
                yield f"messages[{m}].content[{p}].image_url", url["url"] if isinstance(url, dict) else url


def decode_image(url: str, where: str) -> Image.Image:
    """The picture in a `data:image/...;base64,` URI, as RGB. Raises BadRequest for every other address."""
    header = _DATA_URI.match(url)
    if header is None:
        raise BadRequest(
            f"{where}: only data:image/...;base64,... URIs are accepted, no http(s) or file addresses "
            "and no paths; send the image itself",
            param=where,
        )
    try:
        data = base64.b64decode(url[header.end() :], validate=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                return image.convert("RGB")
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise BadRequest(f"{where}: the image has too many pixels", param=where) from error
    except (binascii.Error, OSError, ValueError, SyntaxError) as error:
        raise BadRequest(f"{where}: not a readable base64-encoded image", param=where) from error
