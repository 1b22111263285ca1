"""Serves the page's files. The files are not secret. If keys are required, the page's requests carry a key."""

from __future__ import annotations

from importlib.resources import files

from starlette.routing import Route

from service.api.control.page.asset import Asset, policy

INDEX = "index.html"
_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = policy(image="'self' blob:")  # blob: for the picture that the user chooses


def routes() -> list[Route]:
    """Returns the routes for `/` and the other files."""
    found = {}
    for file in (files(__package__) / "assets").iterdir():
        suffix = "." + file.name.rpartition(".")[2]
        found[file.name] = Asset(file.read_bytes(), _MEDIA_TYPES[suffix], _POLICY)
    index = found.pop(INDEX)
    return [Route("/", index.respond), *(Route(f"/page/{name}", each.respond) for name, each in sorted(found.items()))]
