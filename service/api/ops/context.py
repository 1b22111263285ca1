"""The outermost middleware: gives each request an id, and turns every exception into a response."""

from __future__ import annotations

import logging
from functools import partial

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.ops.request_log import about_request, id_of
from service.api.problems import request_id, unexpected_response
from service.core.system.logs import about

_logger = logging.getLogger(__name__)


class RequestContext:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["octet.request_id"] = identity = _id_of(scope)
        about.set(partial(_about, scope))
        header = (b"x-request-id", identity.encode())
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), header]
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            _logger.info("request %s: the client went away", request_id(scope))
        except Exception as exception:
            if started:  # the response has begun, so only closing the connection can signal the failure
                raise
            await unexpected_response(exception, scope)(scope, receive, send_with_id)


def _id_of(scope: Scope) -> str:
    given: bytes = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return id_of(given.decode("latin-1"))


def _about(scope: Scope) -> dict[str, str]:
    traceparent = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    parameters = scope.get("path_params", {})
    model = str(parameters.get("model") or parameters.get("name") or "")
    return about_request(request_id(scope), traceparent.decode("latin-1"), model)
