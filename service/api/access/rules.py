"""The access policy: the scopes that a request needs, by HTTP method and path.

Of what the data plane answers, gRPC among it, `service/native/plane` says the same.

It uses what is known of a request before it is routed. A request that matches no rule needs `admin`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from service.core.key import Scope

_NOBODY: tuple[Scope, ...] = ()  # no key is needed
_LOOK = {"GET", "HEAD"}

_PATHS: Mapping[str, Sequence[Scope]] = {
    "/": _NOBODY,  # the page, which is the same for all users; its requests carry a key
    "/docs": _NOBODY,
    "/api/v1/openapi.json": _NOBODY,  # the same for all users
    "/api/v1/artifacts": (Scope.ADMIN,),  # what is pushed there is native code, which runs with the server's rights
    "/v2": (Scope.PREDICT, Scope.READ),
    "/v2/repository/index": (Scope.PREDICT, Scope.READ),
    "/metrics": (Scope.METRICS, Scope.READ),
}
# The first that fits: for what looks, and for what changes something or predicts.
_PREFIXES: Sequence[tuple[str, Sequence[Scope], Sequence[Scope]]] = (
    ("/page/", _NOBODY, _NOBODY),
    ("/docs/", _NOBODY, _NOBODY),
    ("/v2/health/", _NOBODY, _NOBODY),  # probes and load balancers have no key, and learn one bit
    ("/v2/repository/models/", (Scope.PUSH,), (Scope.PUSH,)),
    ("/v2/", (Scope.PREDICT, Scope.READ), (Scope.PREDICT,)),
    ("/api/v1/keys", (Scope.ADMIN,), (Scope.ADMIN,)),
    ("/api/v1/audit", (Scope.ADMIN,), (Scope.ADMIN,)),
    ("/api/v1/", (Scope.READ, Scope.PUSH), (Scope.PUSH,)),
)


def scopes_of(method: str, path: str) -> Sequence[Scope]:
    """The scopes of which a key needs one; none if no key is required.

    Args:
        method: in capitals.
    """
    if path in _PATHS:
        return _PATHS[path]
    for prefix, looking, acting in _PREFIXES:
        if path.startswith(prefix):
            return looking if method in _LOOK else acting
    return (Scope.ADMIN,)
