"""URL paths of the control plane's resources."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import Request, Response

from service.api.access.tenants import short_name

PREFIX = "/api/v1"


def blob(digest: str) -> str:
    return f"{PREFIX}/blobs/{digest}"


def model(name: str) -> str:
    return f"{PREFIX}/models/{short_name(name)}"


def version(name: str, number: int) -> str:
    return f"{model(name)}/versions/{number}"


def build(id: str) -> str:
    return f"{PREFIX}/builds/{id}"


def job(id: str) -> str:
    return f"{PREFIX}/jobs/{id}"


def quantization(name: str, id: str) -> str:
    return f"{model(name)}/quantizations/{id}"


def artifact(digest: str) -> str:
    return f"{PREFIX}/artifacts/{digest}"


def link_next(request: Request, response: Response, cursor: str | None) -> None:
    """Adds the URL of the next page, if one exists, to the response's `Link` header."""
    if cursor is not None:
        query = urlencode({**request.query_params, "cursor": cursor})
        response.headers["link"] = f'<{request.url.path}?{query}>; rel="next"'
