"""Routes whose request body must be small, because the whole body is read into memory before the route's function is
called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message

from service.api.control.body import small_body
from service.api.services import Services
from service.core.models.metadata import MAX_LABELS_CHARACTERS

MAX_BYTES = 64 << 10

# How predictions may be refused, for the OpenAPI document.
REFUSALS: dict[int | str, dict[str, Any]] = {
    429: {"description": "The queue is full."},
    503: {"description": "The model has no build that could answer."},
    504: {"description": "The deadline has passed."},
}


class BoundedRoute(APIRoute):
    """A route with a size limit for the body that FastAPI reads."""

    most_bytes = MAX_BYTES

    def limit_of(self, request: Request) -> int:
        """Returns the limit of the body in bytes."""
        return self.most_bytes

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:  # the route has no body, or reads the body itself
            return handle

        async def bounded(request: Request) -> Response:
            body = await small_body(request, self.limit_of(request))
            arrived: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Message:
                return arrived.pop() if arrived else await request.receive()

            return await handle(Request(request.scope, receive))

        return bounded


class PredictionRoute(BoundedRoute):
    """A route whose body may be as large as that of a prediction."""

    def limit_of(self, request: Request) -> int:
        services: Services = request.app.state.services
        return services.settings.max_predict_bytes


class LabelsRoute(BoundedRoute):
    """A route whose body may contain the labels of a model. JSON takes up to six bytes for a character."""

    most_bytes = MAX_BYTES + 6 * MAX_LABELS_CHARACTERS
