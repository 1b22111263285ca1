"""Access control for every HTTP request, as ASGI middleware."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.access.access import ANYBODY, Access
from service.api.access.audit import CLUSTER, caller
from service.api.access.rules import is_prediction, scopes_of
from service.api.access.tenants import check_route, tenant
from service.api.ops.metrics import Metrics
from service.api.problems import problem_response, request_id
from service.core.access.key import Scope as KeyScope
from service.core.errors import OctetError
from service.workers.routing.asking import KEY_HEADER

_CLUSTER_KEY = KEY_HEADER.encode()


class Guard:
    """Refuses requests without a sufficient key, or beyond the key's limits, before they are routed and before their
    body is read. If no key is required, refuses requests from other sites' pages.

    `RequestContext` wraps this middleware, and adds the request id to the responses.
    """

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        self._app, self._access, self._metrics = app, access, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            needed = scopes_of(scope["method"], scope["path"])
            who = self._admit(scope, needed) if needed else ANYBODY
            tenant.set(self._access.tenant_of(who))
            if needed and tenant.get():
                check_route(scope["method"], scope["path"])
        except OctetError as error:
            self._metrics.requests_not_allowed.labels(error.code).inc()
            await problem_response(error, scope)(scope, receive, send)
            return
        caller.set((who, request_id(scope)))
        await self._app(scope, receive, send)

    def _admit(self, scope: Scope, needed: Sequence[KeyScope]) -> str:
        if self._access.is_of_cluster(_header(scope, _CLUSTER_KEY), scope["path"]):
            return CLUSTER
        authorization = _header(scope, b"authorization")
        if is_prediction(scope["path"]):
            key = self._access.identify(authorization, *needed)
            who = ANYBODY if key is None else key.id
        else:
            who = self._access.admit(authorization, *needed)
        if who is ANYBODY:
            self._access.sites.check(scope["method"], scope["headers"])
        return who


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    for name, value in scope["headers"]:
        if name == wanted:
            return bytes(value)
    return None
