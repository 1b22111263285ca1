"""The data plane: the Open Inference Protocol, version 2, over HTTP, with its binary tensor extension.

Beyond the protocol, an input of an image model may be a JPEG or PNG: as a BYTES tensor of shape [1], or as the whole
body of a request with the header `Inference-Header-Content-Length: 0` or a Content-Type `image/jpeg` or `image/png`.
The answer to such a raw request is JSON, or binary if its `Accept` names `application/octet-stream`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route
from starlette.types import ASGIApp

from service.api.oip.about import About
from service.api.oip.front.shortcut import Shortcut
from service.api.oip.infer import Infer
from service.api.oip.metadata import Metadata
from service.api.oip.repository import Repository
from service.api.oip.telemetry import InferenceTelemetry
from service.api.ops.collectors import ModelCollector
from service.api.ops.middleware import with_middleware
from service.api.ops.traced import Traced

if TYPE_CHECKING:
    from fastapi import FastAPI

    from service.api.services import Services

__all__ = ["InferenceTelemetry", "install", "routes"]


def install(app: FastAPI, services: Services) -> None:
    """Has `app` answer what is under `/v2`: by its routes, and predict requests by the shortcut of a connection."""
    services.metrics.registry.register(ModelCollector(services.registry))
    infer: ASGIApp = Infer(services.registry, services.metrics, services.settings.max_predict_bytes)
    app.state.infer = infer
    if services.tracing is not None:
        infer = Traced(infer, services.tracing)
    app.state.shortcut = Shortcut(with_middleware(infer, services), services.settings.max_predict_bytes)
    app.router.routes[:0] = routes(services, infer)


def routes(services: Services, infer: ASGIApp) -> list[Route]:
    """The routes under `/v2`, which are matched in order."""
    about = About(services.registry, services.metrics)
    metadata, repository = Metadata(about), Repository(services.registry, about, services.audit)
    model = "/v2/models/{model}"
    version = model + "/versions/{version}"
    return [
        *(Route(path + "/infer", infer, methods=["POST"]) for path in (model, version)),
        *(Route(path + "/ready", metadata.model_ready) for path in (model, version)),
        Route("/v2/models/stats", metadata.statistics),  # before a model of that name
        *(Route(path + "/stats", metadata.model_statistics) for path in (model, version)),
        *(Route(path + "/config", metadata.config) for path in (model, version)),
        *(Route(path, metadata.model) for path in (model, version)),
        Route("/v2/repository/index", repository.index, methods=["POST"]),
        Route("/v2/repository/models/{model}/load", repository.load, methods=["POST"]),
        Route("/v2/repository/models/{model}/unload", repository.unload, methods=["POST"]),
        Route("/v2/health/live", metadata.live),
        Route("/v2/health/ready", metadata.ready),
        Route("/v2", metadata.server),
    ]
