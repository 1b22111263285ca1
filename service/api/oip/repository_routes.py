"""The model_repository extension over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from service.api.oip.members import flag, json_object, parameters_of
from service.api.oip.repository import Repository
from service.api.services import Services
from service.core.errors import TooLarge

_MAX_BYTES = 64 << 10


def routes(services: Services) -> list[Route]:
    repository = Repository(services.registry, services.audit, services.routing)

    async def index(request: Request) -> JSONResponse:
        return JSONResponse(await repository.index(flag(await _body(request), "ready", False)))

    async def load(request: Request) -> JSONResponse:
        name = request.path_params["model"]
        await repository.load(name, parameters_of(await _body(request), "the request"))
        return JSONResponse({"name": name, "load": True})

    async def unload(request: Request) -> JSONResponse:
        name = request.path_params["model"]
        await repository.unload(name, parameters_of(await _body(request), "the request"))
        return JSONResponse({"name": name, "unload": True})

    return [
        Route("/v2/repository/index", index, methods=["POST"]),
        Route("/v2/repository/models/{model}/load", load, methods=["POST"]),
        Route("/v2/repository/models/{model}/unload", unload, methods=["POST"]),
    ]


async def _body(request: Request) -> Mapping[str, Any]:
    """Returns the members of the JSON object in the body. Returns no members if the body is empty."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BYTES:
            raise TooLarge(f"the body is larger than {_MAX_BYTES} bytes")
    return json_object(bytes(body)) if body else {}
