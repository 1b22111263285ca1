"""Metadata and readiness of the server and its models: the small endpoints of the protocol."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from service.api.oip.about import About
from service.api.oip.address import model_and_version


class Metadata:
    """The endpoints that `About` answers."""

    def __init__(self, about: About) -> None:
        self._about = about

    async def server(self, request: Request) -> JSONResponse:
        return JSONResponse(self._about.server())

    async def live(self, request: Request) -> JSONResponse:
        return JSONResponse(self._about.live())

    async def ready(self, request: Request) -> JSONResponse:
        return JSONResponse(self._about.ready())

    async def model(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._about.model(*model_and_version(request.scope)))

    async def model_ready(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._about.model_ready(*model_and_version(request.scope)))

    async def config(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._about.config(*model_and_version(request.scope)))

    async def model_statistics(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._about.statistics(*model_and_version(request.scope)))

    async def statistics(self, request: Request) -> JSONResponse:
        return JSONResponse(await self._about.statistics())
