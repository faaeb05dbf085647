"""Small pictures for vision models."""

import base64
import io

from PIL import Image


def picture_uri(color: str = "red", size: int = 30) -> str:
    """A data: URI of a plain PNG."""
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), color).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
