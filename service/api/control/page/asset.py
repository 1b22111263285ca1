"""A static file, sent with headers that keep untrusted text from becoming markup or code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

HEADERS = {
    # cached, but revalidated each time: an update is visible at once, and an unchanged file costs only a 304
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def policy(style: str = "'self'", image: str = "'self'", trusted_types: bool = True) -> str:
    """Returns a Content-Security-Policy that allows no connection to another site.

    Args:
        style, image: the allowed sources of styles and pictures.
        trusted_types: true to forbid turning text into markup or code. Names of models and tensors, and errors that
            contain them, are untrusted text.
    """
    directives = [
        "default-src 'none'",
        "script-src 'self'",
        f"style-src {style}",
        f"img-src {image}",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    directives += ["require-trusted-types-for 'script'", "trusted-types 'none'"] if trusted_types else []
    return "; ".join(directives)


@dataclass(frozen=True)
class Asset:
    """A file of the page."""

    content: bytes
    media_type: str
    policy: str

    async def respond(self, request: Request) -> Response:
        etag = '"' + hashlib.sha256(self.content).hexdigest()[:32] + '"'
        headers = HEADERS | {"etag": etag, "content-security-policy": self.policy}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)
