"""`/api/v1/artifacts`: compiled models by digest, and their reports."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from service.api.access.tenants import check_artifact
from service.api.control import paths, submission, views, wire
from service.api.control.body import small_body, source_of
from service.api.control.bounded import BoundedRoute
from service.api.injected import ServicesOf
from service.api.services import Services
from service.cache import MANIFEST_MEDIA_TYPE, Manifest
from service.cache.export import export
from service.cache.oci import LARGEST_MANIFEST_BYTES
from service.compiler.build.artifact_archive import check_head, received
from service.core.artifacts.artifact import ARCHIVE_FORMAT, ARTIFACT_TYPE, Report
from service.core.artifacts.explanation import build_explanation
from service.core.digest import Digest
from service.core.errors import Forbidden, InvalidInput, NotFound, Untrusted
from service.core.provenance import trusted_keys
from service.core.provenance.envelope import MOST_BYTES
from service.runtime.scores import read_score

router = APIRouter(prefix=f"{paths.PREFIX}/artifacts", tags=["artifacts"], route_class=BoundedRoute)

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
        200: {"description": "The artifact was verified before; returns that build.", "model": wire.Build},
        202: {"description": "The artifact is being verified; `Location` is the URL of the build that does it."},
        413: {"description": "The file is larger than the server accepts."},
        415: {"description": "The file is not an archive of an artifact."},
        422: {"description": "The artifact's target or numerics mode is unknown, or this server has no compiler."},
    },
)
async def push_artifact(
    request: Request,
    response: Response,
    services: ServicesOf,
    name: wire.QueryName,
    accept_differences: wire.QueryAccept = False,
    source: Annotated[
        str | None,
        Query(pattern=wire.DIGEST_PATTERN, description="The digest of a stored blob to use instead of a body."),
    ] = None,
) -> wire.Build:
    """The body is a tar archive of an OCI image layout, as `GET /api/v1/artifacts/{digest}/content` returns it: the
    output of `octet compile`, which includes the expected outputs of the model.

    A build loads the artifact in the sandbox and compares its outputs with the expected ones. When the build has
    succeeded, the artifact is served. An artifact is native code: where API keys are required, the key needs the scope
    `admin`.
    """
    await run_in_threadpool(submission.require_compiler)
    digest = await source_of(request, services, source, check_head)

    def record() -> wire.Build:
        blobs = services.layout.blobs
        size_bytes = blobs.renew(digest)
        found = received(blobs.path(digest))
        version = submission.add_version(services, name, digest, ARCHIVE_FORMAT, size_bytes)
        build = submission.request_builds(
            services, version, [found.target], found.numerics, accepts=accept_differences
        )[0]
        noted = {"source": digest, "artifact": found.digest, "build": build.id}
        services.audit.note("push_artifact", model=name, version=version.number, **noted)
        return views.answer_with_build(response, build, services.builds)

    return await run_in_threadpool(record)


@router.put(
    "/{digest}/score",
    summary="Attach a score",
    status_code=204,
    openapi_extra={"requestBody": {"required": True, "content": _JSON}},
    responses={
        400: {"description": "The body is not a score of this artifact."},
        403: {"description": "No key that this server trusts signed the score, or the API key is a tenant's."},
        413: {"description": "The body is larger than a score may be."},
    },
)
async def put_score(digest: wire.PathDigest, request: Request, services: ServicesOf) -> Response:
    """Replaces the artifact's score by the one in the body, as `octet evaluate --attach` sends it. Promotions may
    require scores.
    """
    document = await small_body(request, MOST_BYTES)

    def attach() -> None:
        artifact = Digest(digest)
        _manifest_bytes(services, artifact)
        try:
            found = read_score(document, artifact, trusted_keys(services.settings))
        except Untrusted as error:
            raise Forbidden(error.message, hint=error.hint) from error
        services.layout.attach(artifact, Report.SCORE, document)
        services.audit.note("put_score", artifact=artifact, key=found.key.id if found.key else None)

    await run_in_threadpool(attach)
    return Response(status_code=204)


@router.get(
    "/{digest}",
    summary="Get an artifact's manifest",
    response_class=Response,
    responses={200: {"content": {MANIFEST_MEDIA_TYPE: {"schema": {"type": "object"}}}}},
)
def get_artifact(digest: wire.PathDigest, services: ServicesOf) -> Response:
    """The OCI manifest, byte for byte: its SHA-256 hash is the digest."""
    manifest = _manifest_bytes(services, Digest(digest))
    headers = {"etag": f'"{digest}"', "cache-control": _FOREVER, "docker-content-digest": digest}
    return Response(manifest, headers=headers, media_type=MANIFEST_MEDIA_TYPE)


@router.get(
    "/{digest}/content",
    summary="Download an artifact",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-tar": {"schema": {"type": "string", "format": "binary"}}}}},
)
def get_content(digest: wire.PathDigest, services: ServicesOf) -> Response:
    """A tar archive of an OCI image layout with the manifest, the config, the library, the constants and all reports.

    Unpacked, it is a folder that `octet run` and `service.runtime.load` read and `oras` can push.
    """
    _manifest_bytes(services, Digest(digest))
    archive = export(services.layout, Digest(digest))
    headers = {
        "content-length": str(archive.size_bytes),
        "content-disposition": f'attachment; filename="{digest.removeprefix("sha256:")[:12]}.tar"',
    }
    return StreamingResponse(archive.chunks(), headers=headers, media_type="application/x-tar")


def _add_report(report: Report, summary: str, description: str, *, is_optional: bool = False) -> None:
    """Adds a route for a report. An artifact without an optional report gives 204, without any other report 404."""
    name = report.name.lower()

    def get_report(digest: wire.PathDigest, services: ServicesOf) -> Response:
        _manifest_bytes(services, Digest(digest))
        data = services.layout.attached(Digest(digest), report)
        if data is None and is_optional:
            return Response(status_code=204, headers={"cache-control": "no-cache"})
        if data is None:
            raise NotFound(f"artifact {digest} has no {name} report")
        return Response(data, headers={"cache-control": "no-cache"}, media_type="application/json")

    responses: dict[int, Any] = {200: {"content": _JSON}}
    if is_optional:
        responses[204] = {"description": f"The artifact has no {name}."}
    options: dict[str, Any] = {"response_class": Response, "responses": responses}
    router.get(f"/{{digest}}/{name}", summary=summary, description=description, operation_id=f"get_{name}", **options)(
        get_report
    )


_add_report(
    Report.NUMERICS,
    "Get the numerics report",
    "The runtimes that the artifact's outputs were checked against, with their versions and options, "
    "and the number of values that were equal, bit for bit; or the reason that a runtime did not "
    "run. docs/how-to/reports.md describes its members.",
)
_add_report(
    Report.COVERAGE,
    "Get the coverage report",
    "The share of multiply-accumulates that are computed in integer arithmetic, and the reason for "
    "each operator that is computed in another way.",
)
_add_report(
    Report.PROFILE,
    "Get the profile",
    "The duration of each call, in order, on the machine that the profile names. It was measured by "
    "the build, or later by `octet explain --attach`.",
)
_add_report(
    Report.FACTS,
    "Get the facts about the model",
    "The model's signature, operators, multiply-accumulates and parameters, and the quantization of "
    "its weights and activations.",
)
_add_report(
    Report.SCORE,
    "Get the score",
    "An in-toto Statement with the scores of the artifact on a data set, which `octet evaluate --attach` stored. If it "
    "is signed, a DSSE envelope with the statement as its payload.",
    is_optional=True,
)
_add_report(
    Report.PROVENANCE,
    "Get the provenance",
    "An in-toto Statement with SLSA's provenance: the source, the versions of all tools, the options, the builder and "
    "the duration of each step. If builds are signed, a DSSE envelope with the statement as its payload.",
)


@router.get(
    "/{digest}/layers",
    summary="List the layers",
    response_class=Response,
    responses={
        200: {"content": _JSON},
        422: {"description": "The artifact was compiled by a version of Octet that did not record its layers."},
    },
)
def get_layers(digest: wire.PathDigest, services: ServicesOf) -> Response:
    """The data of `octet explain`: the kernel and the multiply-accumulates of each layer. If a profile is attached,
    also the layer's time, its rate, and its share of the machine's peak.
    """
    _manifest_bytes(services, Digest(digest))
    coverage, profile = (services.layout.attached(Digest(digest), each) for each in (Report.COVERAGE, Report.PROFILE))
    if coverage is None:
        raise NotFound(f"artifact {digest} has no coverage report")
    layers = build_explanation(json.loads(coverage), json.loads(profile) if profile else None).to_json()
    return Response(json.dumps(layers), headers={"cache-control": "no-cache"}, media_type="application/json")


def _manifest_bytes(services: Services, digest: Digest) -> bytes:
    """The manifest of an artifact. Other blobs, such as other users' models, cannot be read here."""
    check_artifact(services.builds, digest)
    blobs = services.layout.blobs
    if blobs.size_bytes(digest) <= LARGEST_MANIFEST_BYTES:
        with suppress(InvalidInput):
            data = blobs.read(digest)
            if Manifest.from_bytes(data).artifact_type == ARTIFACT_TYPE:
                return data
    raise NotFound(f"there is no artifact {digest}")
