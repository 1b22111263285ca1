"""`/api/v1/updates`: a stream of everything that changes on the server."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse

from service import __version__
from service.api.access.tenants import tenant
from service.api.control import paths
from service.api.control.compression import accepts_gzip
from service.api.control.updates.snapshot import Snapshots
from service.api.control.updates.stream import compressed, stream_of
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.access.key import Scope
from service.core.builds.numerics import MODES

router = APIRouter(prefix=f"{paths.PREFIX}/updates", tags=["models"])

_EVENTS = {
    "type": "object",
    "properties": {
        "event": {"type": "string", "enum": ["hello", "change", "problem"]},
        "data": {"type": "string", "description": "A JSON object."},
    },
}


@router.get(
    "",
    summary="Follow everything",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events `hello`, `change` and `problem`, until the client leaves.",
            "content": {"text/event-stream": {"schema": _EVENTS}},
        }
    },
)
async def follow_updates(
    request: Request,
    services: ServicesOf,
    once: Annotated[bool, Query(description="Ends the stream after the first `change`.")] = False,
    accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """A stream of server-sent events. The first, `hello`, describes the server and the scopes of the key. The next,
    `change`, contains the whole state, and each further `change` only what has changed, about once a second:

    `{"at": TIME, "models": {"set": {NAME: MODEL}, "gone": [NAME]}, …}`

    The parts are `models` (by name, without `metadata` and `facts`), `index` (the versions that answer, by
    `NAME/VERSION`), `builds` (by id; the newest 50, those that have not ended, and those of the newest version of each
    model), `quarantine` (by digest), `broken` (the reason by file), `load` (requests that were answered, refused,
    invalid, waiting and running) and `latency` (by `NAME/VERSION`: requests in each bucket of `bounds_s`, and those
    that failed). A key without the scope `read` or `push` gets `index` only.
    """
    scopes = _scopes(services, request.headers.get("authorization"))
    reads = Scope.READ in scopes or Scope.PUSH in scopes
    about: dict[str, Any] = {
        "release": __version__,
        "scopes": scopes,
        "requires_key": services.access.requires_key,
        "tenant": tenant.get(),
        "modes": list(MODES),
        "bounds_s": list(services.metrics.request_duration.bounds),
    }
    if reads:
        about["cpu"] = services.host.model_name
    snapshots = _snapshots(request, services)
    events = stream_of(services, lambda: snapshots.take(reads), about, once=once)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no", "vary": "accept-encoding"}
    if accepts_gzip(accept_encoding):
        events, headers["content-encoding"] = compressed(events), "gzip"
    return StreamingResponse(events, headers=headers, media_type="text/event-stream")


def _scopes(services: Services, authorization: str | None) -> list[Scope]:
    """Returns the scopes that the request's key has; all of them if no key is required."""
    header = None if authorization is None else authorization.encode("latin-1")
    key = services.access.identify(header, *Scope)
    return [scope for scope in Scope if key is None or key.allows(scope)]


def _snapshots(request: Request, services: Services) -> Snapshots:
    """Returns the snapshots that all streams of the application share."""
    if not hasattr(request.app.state, "snapshots"):
        request.app.state.snapshots = Snapshots(services)
    snapshots: Snapshots = request.app.state.snapshots
    return snapshots
