"""`/api/v1/artifacts`: what builds made, by digest, and what was found out about it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from service.api.control import paths, submission, views, wire
from service.api.control.body import source_of
from service.api.control.bounded import BoundedRoute
from service.api.services import Services, ServicesOf
from service.cache import MANIFEST_MEDIA_TYPE, Manifest
from service.cache.export import export
from service.compiler.artifact_archive import check_head, received
from service.core.artifact import ARCHIVE_FORMAT, ARTIFACT_TYPE, Report
from service.core.digest import Digest
from service.core.errors import InvalidInput, NotFound
from service.core.explanation import explained

router = APIRouter(prefix=f"{paths.PREFIX}/artifacts", tags=["artifacts"], route_class=BoundedRoute)

_LARGEST_MANIFEST_BYTES = 4 << 20  # as much as the distribution specification asks registries to take
_FOREVER = "public, max-age=31536000, immutable"
_BINARY = {"type": "string", "format": "binary"}
_JSON = {"application/json": {"schema": {"type": "object"}}}


@router.put(
    "",
    summary="Upload an artifact and serve it",
    operation_id="push_artifact",
    status_code=202,
    response_model=wire.Build,
    openapi_extra={
        "requestBody": {"content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}}
    },
    responses={
        200: {"description": "It was verified before: the build has succeeded.", "model": wire.Build},
        202: {"description": "It is being verified; `Location` is where its build is."},
        413: {"description": "The file is over the limit."},
        415: {"description": "The file is not an archive of an artifact."},
        422: {"description": "Its target or numerics mode is not known here; or this server has no compiler."},
    },
)
async def push_artifact(
    request: Request,
    response: Response,
    services: ServicesOf,
    name: wire.QueryName,
    source: Annotated[
        str | None, Query(pattern=wire.DIGEST_PATTERN, description="A stored blob, in place of a body.")
    ] = None,
) -> wire.Build:
    """The body is a tar archive of an OCI image layout, as `GET /api/v1/artifacts/{digest}/content` answers it: what
    `octet compile` wrote, with the outputs that it expects. It is served when its build has succeeded, which loads it
    in the sandbox and holds it to them. An artifact is native code: where keys are asked for, the scope is `admin`.
    """
    await run_in_threadpool(submission.require_compiler)
    digest = await source_of(request, services, source, check_head)

    def record() -> wire.Build:
        blobs = services.layout.blobs
        size_bytes = blobs.renew(digest)
        found = received(blobs.path(digest))
        version = submission.add_version(services, name, digest, ARCHIVE_FORMAT, size_bytes)
        build = submission.request_builds(services, version, [found.target], found.numerics)[0]
        noted = {"source": digest, "artifact": found.digest, "build": build.id}
        services.audit.note("push_artifact", model=name, version=version.number, **noted)
        return views.answer_with_build(response, build, services.builds)

    return await run_in_threadpool(record)


@router.get(
    "/{digest}",
    summary="An artifact",
    response_class=Response,
    responses={200: {"content": {MANIFEST_MEDIA_TYPE: {"schema": {"type": "object"}}}}},
)
def get_artifact(digest: wire.PathDigest, services: ServicesOf) -> Response:
    """The OCI manifest itself: these bytes hash to the digest."""
    manifest = _manifest_bytes(services, Digest(digest))
    headers = {"etag": f'"{digest}"', "cache-control": _FOREVER, "docker-content-digest": digest}
    return Response(manifest, headers=headers, media_type=MANIFEST_MEDIA_TYPE)


@router.get(
    "/{digest}/content",
    summary="An artifact, with everything it consists of",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}}},
)
def get_content(digest: wire.PathDigest, services: ServicesOf) -> Response:
    """A tar archive of an OCI image layout: manifest, config, library, constants and all reports. Unpacked, it is what
    `octet run` and `service.runtime.load` take, and what `oras` can push.
    """
    _manifest_bytes(services, Digest(digest))
    archive = export(services.layout, Digest(digest))
    headers = {
        "content-length": str(archive.size_bytes),
        "content-disposition": f'attachment; filename="{digest.removeprefix("sha256:")[:12]}.tar"',
    }
    return StreamingResponse(archive.chunks(), headers=headers, media_type="application/x-tar")


def _add_report(report: Report, summary: str, description: str) -> None:
    name = report.name.lower()

    def get_report(digest: wire.PathDigest, services: ServicesOf) -> Response:
        _manifest_bytes(services, Digest(digest))
        data = services.layout.attached(Digest(digest), report)
        if data is None:
            raise NotFound(f"artifact {digest} has no {name} report")
        return Response(data, headers={"cache-control": "no-cache"}, media_type="application/json")

    options: dict[str, Any] = {"response_class": Response, "responses": {200: {"content": _JSON}}}
    router.get(f"/{{digest}}/{name}", summary=summary, description=description, operation_id=f"get_{name}", **options)(
        get_report
    )


_add_report(
    Report.NUMERICS,
    "What the outputs were checked against",
    "The runtimes that computed the same inputs, their versions and options, and how many values were equal, bit for "
    "bit; or why one was not asked. docs/how-to/reports.md has its members.",
)
_add_report(
    Report.COVERAGE,
    "What is computed in integers",
    "The share of multiply-accumulates in integer arithmetic, and the reason for each operator that is not.",
)
_add_report(
    Report.PROFILE,
    "Where its time goes",
    "How long each call took, in order, on the machine that it names: when it was built, or "
    "later, by `octet explain --attach`.",
)
_add_report(
    Report.FACTS,
    "What the model is",
    "Its signature, operators, multiply-accumulates, parameters, and how its weights and activations are quantized.",
)
_add_report(
    Report.PROVENANCE,
    "What the artifact was made of",
    "The inputs of the build key, source and versions of all tools, and how long each step took.",
)


@router.get(
    "/{digest}/layers",
    summary="Its layers",
    response_class=Response,
    responses={
        200: {"content": _JSON},
        422: {"description": "It was compiled by a version of Octet that did not say what its layers are."},
    },
)
def get_layers(digest: wire.PathDigest, services: ServicesOf) -> Response:
    """What `octet explain` shows: each layer's kernel and multiply-accumulates; and its time, rate and share of the
    machine's peak, where a profile is attached.
    """
    _manifest_bytes(services, Digest(digest))
    coverage, profile = (services.layout.attached(Digest(digest), each) for each in (Report.COVERAGE, Report.PROFILE))
    if coverage is None:
        raise NotFound(f"artifact {digest} has no coverage report")
    layers = explained(json.loads(coverage), json.loads(profile) if profile else None).to_json()
    return Response(json.dumps(layers), headers={"cache-control": "no-cache"}, media_type="application/json")


def _manifest_bytes(services: Services, digest: Digest) -> bytes:
    """The manifest of an artifact. Other blobs, such as other people's models, are not to be had here."""
    blobs = services.layout.blobs
    if blobs.size_bytes(digest) <= _LARGEST_MANIFEST_BYTES:
        with suppress(InvalidInput):
            data = blobs.read(digest)
            if Manifest.from_bytes(data).artifact_type == ARTIFACT_TYPE:
                return data
    raise NotFound(f"there is no artifact {digest}")
