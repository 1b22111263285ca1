"""`/docs`: the API reference in Swagger UI, from this server's OpenAPI document.

Nothing is loaded from the internet: the files come from the package `fastapi-offline`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from service.api.control.page.asset import HEADERS, Asset, policy

# Swagger UI sets its own inline styles, and its style sheet contains pictures.
_POLICY = policy(style="'self' 'unsafe-inline'", image="'self' data:", trusted_types=False)
_FILES = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_INDEX = b"""<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>Octet: API</title>
  <link rel="icon" href="page/icon.svg">
  <link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
  <div id="reference"></div>
  <script src="docs/swagger-ui-bundle.js"></script>
  <script src="docs/start.js"></script>
</body>
</html>
"""
_START = b'SwaggerUIBundle({ url: "api/v1/openapi.json", dom_id: "#reference", deepLinking: true });\n'


@dataclass(frozen=True)
class _Vendored:
    """A file of about a megabyte. It is read from disk for each request instead of being kept in memory."""

    path: Path
    media_type: str

    async def respond(self, request: Request) -> Response:
        return FileResponse(self.path, headers=HEADERS, media_type=self.media_type)


def reference_routes() -> list[Route]:
    """Returns the routes for `/docs` and its files."""
    folder = Path(str(files("fastapi_offline"))) / "static"
    index = Asset(_INDEX, "text/html; charset=utf-8", _POLICY)
    start = Asset(_START, "text/javascript; charset=utf-8", _POLICY)
    vendored = [Route(f"/docs/{name}", _Vendored(folder / name, kind).respond) for name, kind in _FILES.items()]
    return [Route("/docs", index.respond), Route("/docs/start.js", start.respond), *vendored]
