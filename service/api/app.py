"""The application: what the data plane does not answer itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from service import __version__
from service.api import problems
from service.api.control import (
    aliases,
    artifacts,
    audit,
    blobs,
    builds,
    deletion,
    keys,
    models,
    openapi,
    page,
    paths,
    quarantine,
    targets,
    workers,
)
from service.api.oip import repository
from service.api.oip.address import parse_addresses
from service.api.ops import scrape
from service.api.ops.collectors import BuildCollector, CacheCollector, ModelCollector
from service.api.ops.middleware import with_middleware
from service.api.services import Services

_SAVE_USAGE_S = 1.0  # what is lost of it when this process is killed
_DESCRIPTION = (
    "Octet compiles models that are already quantized to 8 bits, and serves predictions. Push a "
    "model with `PUT /api/v1/models?name=…`, wait for its build, and send predictions to `POST "
    "/v2/models/…/infer`."
)


def control_plane() -> FastAPI:
    """The routes under `/api/v1`, without what they work on: enough for the OpenAPI document."""
    app = FastAPI(
        title="Octet",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=f"{paths.PREFIX}/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from the internet
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
    )
    for module in (
        models,
        deletion,
        aliases,
        builds,
        artifacts,
        quarantine,
        blobs,
        targets,
        workers,
        keys,
        audit,
        scrape,
    ):
        app.include_router(module.router)
    problems.install(app)
    openapi.install(app)
    return app


def create_app(services: Services) -> FastAPI:
    """The whole application on `services`; it ends what they hold when it is shut down."""
    app = control_plane()
    app.add_middleware(with_middleware, services=services)
    app.state.services = services
    app.router.lifespan_context = _lifespan
    app.router.routes[:0] = repository.routes(services)
    app.router.routes += [*page.routes(), *page.reference_routes()]
    services.metrics.registry.register(ModelCollector(services.registry))
    services.metrics.registry.register(BuildCollector(services.builds))
    services.metrics.registry.register(CacheCollector(services.layout.blobs))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    wanted = parse_addresses(services.settings.preload)
    reaching = asyncio.create_task(services.plane.run())
    saving = asyncio.create_task(_save_usage(services))
    preloading = asyncio.create_task(services.registry.preload(wanted))  # requests are taken meanwhile
    following = asyncio.create_task(_follow_files(services))
    await asyncio.sleep(0)  # so that it has begun before the server is announced as ready
    yield
    services.stopping.set()
    for task in (preloading, saving, following, reaching):
        task.cancel()
    await services.registry.close()
    await asyncio.to_thread(services.access.save)


async def _follow_files(services: Services) -> None:
    if services.settings.model_files:
        from service.api.control.model_files import ModelFiles  # what packs files of MXNet is not for every server

        await ModelFiles(services, services.settings.model_files).run()


async def _save_usage(services: Services) -> None:
    while True:
        await asyncio.sleep(_SAVE_USAGE_S)
        await asyncio.to_thread(services.access.save)
