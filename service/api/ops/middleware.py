"""The middleware of every HTTP application, on whatever path a request reaches it."""

from __future__ import annotations

from starlette.types import ASGIApp

from service.api.access.guard import Guard
from service.api.ops.context import RequestContext
from service.api.services import Services


def with_middleware(app: ASGIApp, services: Services) -> ASGIApp:
    """`app`, for requests that have an id and were let in; its unforeseen exceptions are answered."""
    return RequestContext(Guard(app, services.access, services.metrics))
