"""Which scope a request needs: the whole policy, by the path of HTTP or the full method of gRPC.

It goes by what is known of a request before it is routed. What stands nowhere here needs `admin`.
"""

from __future__ import annotations

from service.core.key import Scope

_GRPC = "/inference.GRPCInferenceService/"
_PATHS: dict[str, Scope | None] = {
    "/": None,  # the page, which is the same for everybody, and shows a key for what it asks
    "/v2": Scope.PREDICT,
    "/metrics": Scope.METRICS,
    "/api/v1/artifacts": Scope.ADMIN,  # what is pushed there is native code, which runs with the server's rights
    "/api/v1/openapi.json": None,  # the same for everybody
    _GRPC + "ServerLive": None,  # as /v2/health/
    _GRPC + "ServerReady": None,
    _GRPC + "RepositoryModelLoad": Scope.PUSH,
    _GRPC + "RepositoryModelUnload": Scope.PUSH,
}
_PREFIXES: tuple[tuple[str, Scope | None], ...] = (  # the first that fits
    ("/v2/models/", Scope.PREDICT),
    ("/page/", None),
    ("/v2/health/", None),  # probes and load balancers have no key, and learn one bit
    ("/v2/repository/models/", Scope.PUSH),
    ("/v2/", Scope.PREDICT),
    (_GRPC, Scope.PREDICT),
    ("/grpc.health.v1.Health/", None),
    ("/api/v1/keys", Scope.ADMIN),
    ("/api/v1/audit", Scope.ADMIN),
    ("/api/v1/", Scope.PUSH),
)


def scope_of(path: str) -> Scope | None:
    """What a key has to be for; None where nobody needs one."""
    if path in _PATHS:
        return _PATHS[path]
    for prefix, scope in _PREFIXES:
        if path.startswith(prefix):
            return scope
    return Scope.ADMIN
