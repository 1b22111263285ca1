"""`/api/v1/blobs`: model files by digest, so that clients need not send a file that is already stored."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from service.api.control import paths, wire
from service.api.control.body import receive_blob
from service.api.control.room import check_source
from service.api.injected import ServicesOf
from service.core.digest import Digest

router = APIRouter(prefix=f"{paths.PREFIX}/blobs", tags=["blobs"])

_RAW_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string"}}}}}


@router.head(
    "/{digest}",
    summary="Check whether a blob is stored",
    response_class=Response,
    responses={
        200: {"description": "The blob is stored; `Content-Length` is its size."},
        404: {"description": "The blob is not stored."},
    },
)
def look_up(digest: wire.PathDigest, services: ServicesOf) -> Response:
    check_source(services, Digest(digest))
    size_bytes = services.layout.blobs.renew(
        Digest(digest)
    )  # protects the blob from garbage collection, because the client is going to use it
    return Response(headers={"content-length": str(size_bytes), "etag": f'"{digest}"'})


@router.put(
    "/{digest}",
    summary="Store a blob",
    openapi_extra=_RAW_BODY,
    response_model=wire.Blob,
    status_code=201,
    responses={
        200: {"description": "The blob was already stored.", "model": wire.Blob},
        400: {"description": "The body does not hash to the digest."},
        413: {"description": "The body is larger than the server accepts."},
    },
)
async def store(digest: wire.PathDigest, request: Request, response: Response, services: ServicesOf) -> wire.Blob:
    """Stores the body as a blob. The body is hashed while it arrives. A body that is incomplete, or whose hash differs
    from the digest in the path, is discarded.

    To use the blob, name its digest as `source` when you push a model.
    """
    blobs, expected = services.layout.blobs, Digest(digest)
    known = await run_in_threadpool(blobs.exists, expected)
    received = await receive_blob(request, blobs, services.settings.max_upload_bytes, expected=expected)
    response.status_code = 200 if known else 201
    response.headers["location"] = paths.blob(digest)
    return wire.Blob(digest=received.digest, size_bytes=received.size_bytes)
