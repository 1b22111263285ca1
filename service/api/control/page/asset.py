"""A static file, sent with headers that keep untrusted text from becoming markup or code."""

from __future__ import annotations

import gzip
import hashlib

from starlette.requests import Request
from starlette.responses import Response

from service.api.control.compression import accepts_gzip

HEADERS = {
    # cached, but revalidated each time: an update is visible at once, and an unchanged file costs only a 304
    "cache-control": "no-cache",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_DOCUMENT_HEADERS = {"cross-origin-opener-policy": "same-origin", "referrer-policy": "no-referrer"}
_DOCUMENTS = ("text/html", "image/svg+xml")  # the types that a browser shows as documents, with scripts in them


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


class Asset:
    """A file of the page. It is compressed once, because most clients accept that.

    Only documents have a Content-Security-Policy: it applies to all scripts and styles of the document. On each of the
    many small modules, it would be larger than the module.
    """

    def __init__(self, content: bytes, media_type: str, policy: str) -> None:
        self._content, self._media_type = content, media_type
        self._compressed = gzip.compress(content, mtime=0)
        self._etag = '"' + hashlib.sha256(content).hexdigest()[:32] + '"'
        self._headers = HEADERS | {"etag": self._etag, "vary": "accept-encoding"}
        if media_type.startswith(_DOCUMENTS):
            self._headers |= _DOCUMENT_HEADERS | {"content-security-policy": policy}

    async def respond(self, request: Request) -> Response:
        if self._etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=self._headers)
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            headers = self._headers | {"content-encoding": "gzip"}
            return Response(self._compressed, headers=headers, media_type=self._media_type)
        return Response(self._content, headers=self._headers, media_type=self._media_type)
