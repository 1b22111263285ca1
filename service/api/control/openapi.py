"""The OpenAPI document: FastAPI's document of the routes, corrected for errors and completed with the data plane."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.api.access.rules import scopes_of
from service.api.control import wire
from service.api.control.bounded import REFUSALS
from service.api.documents import MEDIA_TYPE
from service.api.oip.document import PATHS, SCHEMAS, TAG
from service.core.access.key import Scope

_METHODS = ("get", "put", "post", "delete", "head", "patch")
_SCHEMA = "#/components/schemas/{model}"


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _SCHEMA.format(model=model.__name__)}}}


_PROBLEM = {"schema": {"$ref": _SCHEMA.format(model="Problem")}}
# The data plane serves this route.
_EMBEDDINGS = {
    "/v1/embeddings": {
        "post": {
            "tags": ["openai"],
            "summary": "Embed texts",
            "description": "The model's task has to be `embed`. A text that is longer than the model's maximum is "
            "truncated.",
            "operationId": "embed",
            "requestBody": {"required": True, "content": _json(wire.EmbeddingRequest)},
            "responses": {
                "200": {"description": "OK.", "content": _json(wire.Embeddings)},
                **{str(status): dict(each) for status, each in REFUSALS.items()},
            },
        }
    }
}
_SECURITY = {
    "key": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key, `octet_ID_SECRET`. A server without keys that is reachable only from its own "
        "machine requires none.",
    }
}
_TAGS = [
    {"name": "models", "description": "Pushed models by name and version, their aliases and their deletion."},
    {"name": "jobs", "description": "Predictions whose results clients fetch later."},
    {"name": "openai", "description": "Embeddings, as clients of OpenAI's API request them."},
    {"name": "tensorflow-serving", "description": "The REST API of TensorFlow Serving."},
    {"name": "builds", "description": "Compilations of a model for a target: their progress, results and logs."},
    {"name": "artifacts", "description": "Compiled models by digest, their reports, and the quarantine."},
    {"name": "blobs", "description": "Model files by digest, so that clients need not send a file twice."},
    {"name": "targets", "description": "Hardware that models can be compiled for."},
    {"name": "workers", "description": "Processes that compile models or run predictions."},
    TAG,
    {"name": "keys", "description": "API keys and the audit log."},
    {"name": "metrics", "description": "Metrics for Prometheus."},
]


def install(app: FastAPI) -> None:
    """Makes `app.openapi()` return the document that this module completes."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=_TAGS
    )
    document["paths"] |= PATHS | _EMBEDDINGS
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _, embeddings = models_json_schema(
        [(wire.EmbeddingRequest, "validation"), (wire.Embeddings, "validation")], ref_template=_SCHEMA
    )
    schemas |= embeddings["$defs"]
    schemas |= {
        each.__name__: each.model_json_schema() for each in (wire.Problem, wire.PredictRequest, wire.TensorFlowRequest)
    } | SCHEMAS
    document["components"]["securitySchemes"] = _SECURITY
    for name, path in document["paths"].items():
        for method in _METHODS:
            if method in path:
                _describe_access(path[method], scopes_of(method.upper(), name))
                _describe_answers(path[method])
    return document


def _describe_access(operation: dict[str, Any], scopes: Sequence[Scope]) -> None:
    """Adds the security requirement and the responses to requests without a sufficient key."""
    operation["security"] = [{"key": []}, {}] if scopes else []
    if scopes:
        responses = operation["responses"]
        responses["401"] = {
            "description": "The server requires an API key, and the request has none or an unknown one."
        }
        responses["403"] = {
            "description": f"The key does not have the scope {' or '.join(f'`{scope}`' for scope in scopes)}."
        }
        responses.setdefault(
            "429", {"description": "The key's rate limit or quota is exceeded; `Retry-After` is when to try again."}
        )


def _describe_answers(operation: dict[str, Any]) -> None:
    """Replaces the response 422, which FastAPI documents for every route, and documents errors as problem documents."""
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
    for status, response in responses.items():
        if response["description"] == "Successful Response":
            response["description"] = f"{HTTPStatus(int(status)).phrase}."
        if status[0] in "45":
            response["content"] = {MEDIA_TYPE: _PROBLEM}
    responses["default"] = {"description": "An error.", "content": {MEDIA_TYPE: _PROBLEM}}
