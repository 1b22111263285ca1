"""The FastAPI application. It serves every request that the data plane does not answer itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI

from service import __version__
from service.api import problems
from service.api.control import openapi, page, paths
from service.api.control.predictions.jobs import Jobs
from service.api.control.predictions.predicting import Predictions
from service.api.control.queries import check_query
from service.api.control.routes import (
    aliases,
    artifacts,
    audit,
    blobs,
    builds,
    compare,
    deletion,
    jobs,
    keys,
    matrix,
    models,
    predict,
    quantizations,
    quarantine,
    saturation,
    targets,
    tokenizers,
    updates,
    workers,
)
from service.api.control.routes.compatibility import openai, tensorflow_serving
from service.api.oip import repository_routes
from service.api.ops import scrape
from service.api.ops.collectors import (
    BuildCollector,
    CacheCollector,
    LiveCollector,
    ModelCollector,
    TenantPlaneCollector,
)
from service.api.ops.lifetime import at_work
from service.api.ops.middleware import with_middleware
from service.api.services import Services
from service.compiler.build.dialects import add_formats
from service.workers.tenant_planes import TenantPlanes

_DESCRIPTION = (
    "Octet compiles models that are already quantized to 8 bits, and serves predictions. Push a "
    "model with `PUT /api/v1/models?name=…`, wait for its build, and send predictions to `POST "
    "/v2/models/…/infer`."
)


def control_plane() -> FastAPI:
    """Returns the application with the routes under `/api/v1` but without services: enough for the OpenAPI document."""
    app = FastAPI(
        title="Octet",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=f"{paths.PREFIX}/openapi.json",
        docs_url=None,  # FastAPI's own pages load scripts from the internet
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        dependencies=[Depends(check_query)],
    )
    for module in (
        models,
        predict,
        jobs,
        openai,
        tensorflow_serving,
        matrix,
        compare,
        saturation,
        quantizations,
        deletion,
        aliases,
        tokenizers,
        builds,
        artifacts,
        quarantine,
        blobs,
        targets,
        updates,
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
    """Returns the whole application, which uses `services` and closes them when it shuts down.

    Raises:
        InvalidInput: a configured dialect cannot be found, or its code failed.
    """
    add_formats(services.settings)
    app = control_plane()
    app.add_middleware(with_middleware, services=services)
    app.state.services, app.state.predictions = services, Predictions(services.settings)
    app.state.jobs = Jobs(services.jobs, Predictions(services.settings), services.stopping)
    app.router.lifespan_context = _lifespan
    app.router.routes[:0] = repository_routes.routes(services)
    app.router.routes += [*page.routes(), *page.reference_routes()]
    services.metrics.registry.register(ModelCollector(services.registry))
    services.metrics.registry.register(BuildCollector(services.builds))
    if services.settings.saturation_share > 0:
        services.metrics.registry.register(LiveCollector(services.live))
    if isinstance(services.plane, TenantPlanes):
        services.metrics.registry.register(TenantPlaneCollector(services.plane))
    services.metrics.registry.register(CacheCollector(services.layout.blobs))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with at_work(app.state.services):
        yield
    app.state.predictions.close()
    app.state.jobs.predictions.close()
