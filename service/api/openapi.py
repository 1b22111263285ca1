"""The OpenAPI document: what FastAPI derives from the routes, with the errors and the data plane as they really are."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.api import wire
from service.api.documents import MEDIA_TYPE
from service.api.v2.document import PATHS, SCHEMAS, TAG

_METHODS = ("get", "put", "post", "delete", "head", "patch")
_PROBLEM = {"schema": {"$ref": "#/components/schemas/Problem"}}
_TAGS = [
    {"name": "models", "description": "What was pushed, by name and version; and the one line that pushes."},
    {"name": "builds", "description": "One question each, “this model for this target”, and how far its answer is."},
    {"name": "artifacts", "description": "What builds made, by digest, and what was found out about it."},
    {"name": "blobs", "description": "Model files by digest, for clients that do not want to send one twice."},
    {"name": "targets", "description": "What can be compiled for."},
    {"name": "workers", "description": "Which processes compile, and which answer predictions."},
    TAG,
    {"name": "metrics", "description": "For Prometheus."},
]


def install(app: FastAPI) -> None:
    """Makes `app.openapi()` this document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=_TAGS
    )
    document["paths"] |= PATHS
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= {"Problem": wire.Problem.model_json_schema(), **SCHEMAS}
    for path in document["paths"].values():
        for method in _METHODS:
            if method in path:
                _describe_answers(path[method])
    return document


def _describe_answers(operation: dict[str, Any]) -> None:
    """FastAPI announces a 422 of its own for every route; ours is another, where there is one."""
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
    for status, response in responses.items():
        if response["description"] == "Successful Response":
            response["description"] = f"{HTTPStatus(int(status)).phrase}."
        if status[0] in "45":
            response["content"] = {MEDIA_TYPE: _PROBLEM}
    responses["default"] = {"description": "An error.", "content": {MEDIA_TYPE: _PROBLEM}}
