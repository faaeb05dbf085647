"""GET /: the page for people, one static file that reads the same routes as everybody else."""

import base64
import hashlib
import re
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

PAGE = Path(__file__).parents[1] / "page" / "index.html"


def build_router() -> APIRouter:
    """The page and nothing else; it holds no data, so it needs no token."""
    router = APIRouter()
    text = PAGE.read_bytes()
    headers = {
        "Content-Security-Policy": content_security_policy(text.decode()),
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(text, media_type="text/html", headers=headers)

    return router


def content_security_policy(page: str) -> str:
    """Lets run only the script that stands in the page, and lets that speak to this server only."""
    scripts = " ".join(_hash(found) for found in re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
