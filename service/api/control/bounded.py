"""Routes whose request body must be small, because the whole body is read into memory before the route's function is
called.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message

from service.core.errors import TooLarge

MAX_BYTES = 64 << 10
_TOO_LARGE = f"the body is larger than {MAX_BYTES} bytes"


class BoundedRoute(APIRoute):
    """A route with a size limit for the body that FastAPI reads."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:  # the route has no body, or reads the body itself
            return handle

        async def bounded(request: Request) -> Response:
            body = await _body(request)
            arrived: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Message:
                return arrived.pop() if arrived else await request.receive()

            return await handle(Request(request.scope, receive))

        return bounded


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BYTES:
            raise TooLarge(_TOO_LARGE)
    return bytes(body)
