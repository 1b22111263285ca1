"""The middleware that every HTTP application uses, whatever path a request takes to it."""

from __future__ import annotations

from starlette.types import ASGIApp

from service.api.access.guard import Guard
from service.api.ops.context import RequestContext
from service.api.services import Services


def with_middleware(app: ASGIApp, services: Services) -> ASGIApp:
    """Wraps `app` so that requests get an id, pass access control, and get a response even if an unexpected exception
    occurs.
    """
    return RequestContext(Guard(app, services.access, services.metrics))
