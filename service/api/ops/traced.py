"""Whether requests are traced, and the application that does it. Loads nothing of OpenTelemetry where they are not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.core.settings import Settings

if TYPE_CHECKING:
    from service.api.ops.tracing import Trace, Tracing

TRACE = "octet.trace"  # the member of a scope
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def start_tracing(settings: Settings) -> Tracing | None:
    """Starts tracing where an endpoint is set, by our settings or by OpenTelemetry's own variables. Returns None
    otherwise.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if not settings.trace_endpoint and not any(map(os.environ.get, _ENDPOINTS)):
        return None
    from service.api.ops.tracing import Tracing

    return Tracing(settings.trace_endpoint, settings.trace_ratio)


class Traced:
    """Traces each request to an application; the handler finds the trace in `scope["octet.trace"]`."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        self._app, self._tracing = app, tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        trace = scope[TRACE] = self._begin(scope)
        if trace is None:
            await self._app(scope, receive, send)
            return
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            trace.end({"http.response.status_code": status}, has_failed=status >= 500)

    def _begin(self, scope: Scope) -> Trace | None:
        method, version = scope["method"], "/versions/{version}" if "version" in scope["path_params"] else ""
        route = f"/v2/models/{{model}}{version}/infer"
        headers = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        return self._tracing.begin(
            f"{method} {route}",
            headers,
            {
                "http.request.method": method,
                "http.route": route,
                "url.path": scope["path"],
                "url.scheme": scope["scheme"],
                "octet.request_id": scope.get("octet.request_id", ""),
            },
        )
