"""A way past the framework for the busiest routes."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class Shortcut:
    """Calls the application of a route as soon as its method and path match, and leaves everything else to `app`.

    What lies between, FastAPI's own layers and the router, takes about as long as to parse a predict request, which
    uses none of it: a bare ASGI application answers its own errors, and lets the others go to `RequestContext`.
    """

    def __init__(self, app: ASGIApp, routes: Sequence[Route]) -> None:
        self._app = app
        self._routes = [(route.path_regex, route.methods or set(), route.app) for route in routes]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for path, methods, app in self._routes:
                if scope["method"] in methods and (match := path.match(scope["path"])):
                    scope["path_params"] = match.groupdict()
                    await app(scope, receive, send)
                    return
        await self._app(scope, receive, send)
