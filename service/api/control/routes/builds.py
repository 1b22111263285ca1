"""`/api/v1/builds`: builds, their progress and their results."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import AfterValidator
from starlette.responses import PlainTextResponse, StreamingResponse

from service.api.access.tenants import build_of, qualified, shorten_names, tenant
from service.api.control import paths, views, wire
from service.api.control.bounded import BoundedRoute
from service.api.control.events import EVENT_SCHEMA, event_stream, last_event_of
from service.api.control.preferences import MAX_WAIT_S, wait_of
from service.api.control.waiting import wait_until
from service.api.injected import ServicesOf
from service.api.services import Services
from service.core.builds.build import BuildState
from service.core.models.model import NAME_PATTERN

router = APIRouter(prefix=f"{paths.PREFIX}/builds", tags=["builds"], route_class=BoundedRoute)


@router.get("", summary="List the builds", response_model=wire.Builds)
def list_builds(
    request: Request,
    response: Response,
    services: ServicesOf,
    model: Annotated[
        str | None,
        Query(pattern=NAME_PATTERN, description="Only builds that this model requested."),
        AfterValidator(lambda name: None if name is None else qualified(name)),
    ] = None,
    state: Annotated[BuildState | None, Query(description="Only builds in this state.")] = None,
    counting: Annotated[
        bool, Query(description="Also list the builds that count clipped values. Their artifacts are not served.")
    ] = False,
    limit: wire.QueryLimit = 50,
    cursor: wire.QueryCursor = None,
) -> wire.Builds:
    """The builds are sorted by time, newest first."""
    builds, following = services.builds.list(model, state, limit, cursor, tenant.get(), counting)
    paths.link_next(request, response, following)
    return wire.Builds(builds=views.builds(builds, services.builds))


@router.get(
    "/{id}",
    summary="Get a build",
    response_model=wire.Build,
    responses={304: {"description": "The build has not changed since the response that `If-None-Match` names."}},
)
async def get_build(
    id: wire.PathBuild,
    request: Request,
    services: ServicesOf,
    prefer: Annotated[
        str | None,
        Header(
            description=f"`wait=30` delays the response until the build has ended, or for 30 s (at most {MAX_WAIT_S}). "
            "With `If-None-Match`, it delays the response until anything about the build has changed."
        ),
    ] = None,
    if_none_match: Annotated[str | None, Header(description="The `ETag` of an earlier response.")] = None,
) -> Response:
    """A failed build is returned with status 200; `error` contains the reason. While the build runs, `Retry-After` is
    when to request it again.
    """

    def look() -> wire.Build:
        return views.build(build_of(services.builds, id), services.builds)

    def is_news(build: wire.Build) -> bool:
        return build.state.is_final or (if_none_match is not None and not _matches(views.etag(build), if_none_match))

    wait_s = wait_of(prefer)
    build = await wait_until(look, is_news, wait_s or 0, services, request)
    headers = {"etag": views.etag(build), "cache-control": "no-cache"}
    if not build.state.is_final:
        headers["retry-after"] = str(views.RETRY_AFTER_S)
    if wait_s is not None:
        headers["preference-applied"] = f"wait={wait_s}"
    if if_none_match is not None and _matches(headers["etag"], if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(build.model_dump_json(), headers=headers, media_type="application/json")


@router.get(
    "/{id}/events",
    summary="Follow a build",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events of the kinds `state`, `stage`, `progress` and `log`, until the build has ended.",
            "content": {"text/event-stream": {"schema": EVENT_SCHEMA}},
        },
        204: {"description": "The build has ended, and there are no events after `Last-Event-ID`; do not reconnect."},
    },
)
def follow_build(
    id: wire.PathBuild,
    services: ServicesOf,
    last_event_id: Annotated[
        str | None, Header(description="The id of the last event that the client has; the stream continues after it.")
    ] = None,
) -> Response:
    """A stream of server-sent events. The `data` of each is a JSON object with the time `at` and, depending on its
    kind: `state` {state, attempt?, owner?, artifact?, error?}, `stage` and `progress` {stage, fraction}, `log` {line}.
    While nothing happens, comments keep the connection open.
    """
    after = last_event_of(last_event_id)
    if build_of(services.builds, id).state.is_final and not services.builds.events(id, after):
        return Response(status_code=204)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(event_stream(services, id, after), headers=headers, media_type="text/event-stream")


@router.get(
    "/{id}/log",
    summary="Get the log of a build",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def get_log(id: wire.PathBuild, services: ServicesOf) -> PlainTextResponse:
    """The lines that the compiler logged, each after its time."""
    build_of(services.builds, id)
    return PlainTextResponse(shorten_names("".join(_log_lines(services, id))))


@router.post("/{id}/cancel", summary="Cancel a build", response_model=wire.Build)
def cancel_build(id: wire.PathBuild, services: ServicesOf) -> wire.Build:
    """Cancels the build for every model that requested it. A running build stops within about a second; until then
    `cancel_requested` is true. A build that has ended stays as it is.
    """
    build = services.builds.cancel(build_of(services.builds, id).id)
    services.audit.note("cancel", build=build.id)
    return views.build(build, services.builds)


def _log_lines(services: Services, id: str) -> list[str]:
    logged = (event for event in services.builds.events(id) if event.kind == "log")
    return [f"{event.at.isoformat(timespec='milliseconds')} {event.data['line']}\n" for event in logged]


def _matches(etag: str, if_none_match: str) -> bool:
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return etag in tags or "*" in tags
