"""The access policy: the scopes that a request needs, by HTTP method and path.

The decision needs only what is available before a request is routed. A request that matches no rule needs `admin`. For
the paths that the data plane answers, including gRPC, `service/native/plane` implements the same policy.

"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from service.core.access.key import Scope

_NOBODY: tuple[Scope, ...] = ()  # no key is needed
_LOOK = {"GET", "HEAD"}

_PATHS: Mapping[str, Sequence[Scope]] = {
    "/": _NOBODY,  # the page, which is the same for all users; its requests carry a key
    "/docs": _NOBODY,
    "/api/v1/openapi.json": _NOBODY,  # the document is the same for all users
    "/api/v1/artifacts": (Scope.ADMIN,),  # an artifact is native code, which runs with the server's permissions
    "/api/v1/updates": (Scope.READ, Scope.PREDICT, Scope.PUSH),  # the state that is sent depends on the key's scopes
    "/v2": (Scope.PREDICT, Scope.READ),
    "/v2/repository/index": (Scope.PREDICT, Scope.READ),
    "/metrics": (Scope.METRICS, Scope.READ),
}
# (prefix of a path, scopes for GET and HEAD, scopes for other methods). The first prefix that matches decides.
_PREFIXES: Sequence[tuple[str, Sequence[Scope], Sequence[Scope]]] = (
    ("/page/", _NOBODY, _NOBODY),
    ("/docs/", _NOBODY, _NOBODY),
    # for probes and load balancers, which have no key; the response contains only whether the server is healthy
    ("/v2/health/", _NOBODY, _NOBODY),
    ("/v2/repository/models/", (Scope.PUSH,), (Scope.PUSH,)),
    ("/v2/", (Scope.PREDICT, Scope.READ), (Scope.PREDICT,)),
    ("/v1/models", (Scope.PREDICT, Scope.READ), (Scope.PREDICT,)),
    ("/api/v1/keys", (Scope.ADMIN,), (Scope.ADMIN,)),
    ("/api/v1/jobs", (Scope.PREDICT,), (Scope.PREDICT,)),  # of predictions
    ("/api/v1/audit", (Scope.ADMIN,), (Scope.ADMIN,)),
    ("/api/v1/", (Scope.READ, Scope.PUSH), (Scope.PUSH,)),
)


_PREDICTION = re.compile(r"/api/v1/models/[^/]+/predict|/v1/models/[^:]+:predict|/v1/(embeddings|rerank)")


def is_prediction(path: str) -> bool:
    """Returns true for the paths of predictions by task, which the data plane counts, because it computes them."""
    return _PREDICTION.fullmatch(path) is not None


def scopes_of(method: str, path: str) -> Sequence[Scope]:
    """Returns the scopes of which a key needs at least one; empty if no key is required.

    Args:
        method: the HTTP method in upper case.
    """
    if path in _PATHS:
        return _PATHS[path]
    if is_prediction(path):
        return (Scope.PREDICT,)
    for prefix, looking, acting in _PREFIXES:
        if path.startswith(prefix):
            return looking if method in _LOOK else acting
    return (Scope.ADMIN,)
