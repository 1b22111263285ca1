"""`/api/v1/models/{name}/versions/{version}/tokenizer`: the tokenizer of a model of text."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool

from service.api.access.tenants import tenant
from service.api.control import paths, submission, wire
from service.api.control.body import receive_blob
from service.api.control.room import check_room
from service.api.control.routes.models import get_version
from service.api.injected import ServicesOf
from service.core.errors import NotFound, UnsupportedFormat
from service.core.models.metadata import ModelMetadata
from service.core.models.text import MAX_TOKENIZER_BYTES, TextProcessing

router = APIRouter(prefix=f"{paths.PREFIX}/models/{{name}}/versions/{{version}}/tokenizer", tags=["models"])

_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILE_BODY = {"requestBody": {"required": True, "content": {"application/octet-stream": _BINARY}}}


@router.put(
    "",
    summary="Set the tokenizer of a version",
    response_model=wire.ModelVersion,
    openapi_extra=_FILE_BODY,
    responses={
        413: {"description": "The file is larger than a tokenizer may be."},
        415: {"description": "The file is not a `tokenizer.json`."},
    },
)
async def put_tokenizer(
    name: wire.PathName, version: wire.PathVersion, request: Request, services: ServicesOf
) -> wire.ModelVersion:
    """The body is the file `tokenizer.json` of the package `tokenizers` (`curl -T tokenizer.json`)."""
    await run_in_threadpool(services.models.version, name, version)
    await run_in_threadpool(check_room, services, tenant.get(), None, 0)
    received = await receive_blob(
        request, services.layout.blobs, MAX_TOKENIZER_BYTES, check_head=_check_head, limit_hint=None
    )
    text = TextProcessing(received.digest, received.size_bytes)
    await run_in_threadpool(submission.describe, services, name, version, ModelMetadata(text=text))
    return await run_in_threadpool(get_version, name, version, services)


@router.get(
    "",
    summary="Download the tokenizer of a version",
    response_class=FileResponse,
    responses={200: {"content": {"application/json": _BINARY}}, 404: {"description": "The version has no tokenizer."}},
)
def get_tokenizer(name: wire.PathName, version: wire.PathVersion, services: ServicesOf) -> FileResponse:
    """Returns the file as it was uploaded."""
    digest = services.models.version(name, version).metadata.text.tokenizer
    if digest is None:
        raise NotFound(f"version {version} of {name!r} has no tokenizer", hint="PUT a tokenizer.json to this URL")
    return FileResponse(
        services.layout.blobs.path(digest), media_type="application/json", headers={"etag": f'"{digest}"'}
    )


def _check_head(head: bytes) -> None:
    if not head.lstrip().startswith(b"{"):
        raise UnsupportedFormat(
            "the tokenizer is not JSON", hint="send the file tokenizer.json, which the package tokenizers writes"
        )
