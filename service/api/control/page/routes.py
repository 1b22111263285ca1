"""Sends the files of the page. They hold nothing secret: whoever must show a key shows it for what they then ask."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INDEX = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing comes from elsewhere, nothing goes elsewhere, and no text ever becomes markup or code: names of models and
# tensors, and errors about them, are what strangers wrote.
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",  # the picture that is tried
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "cache-control": "no-cache",  # kept, but asked about: an update is seen at once, and costs a 304 otherwise
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class Asset:
    """A file of the page."""

    content: bytes
    media_type: str

    async def respond(self, request: Request) -> Response:
        etag = '"' + hashlib.sha256(self.content).hexdigest()[:32] + '"'
        headers = _HEADERS | {"etag": etag}
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def routes() -> list[Route]:
    """`/`, and a route for each of the other files."""
    found = {}
    for file in (files(__package__) / "assets").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        found[file.name] = Asset(file.read_bytes(), _MEDIA_TYPES[suffix])
    index = found.pop(INDEX)
    return [Route("/", index.respond), *(Route(f"/page/{name}", each.respond) for name, each in sorted(found.items()))]
