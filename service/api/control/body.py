"""Reads request bodies. Large bodies are streamed to the blob store. They are hashed as they arrive, limited in size,
and discarded if incomplete.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from service.api.control import multipart
from service.api.control.room import check_source
from service.api.services import Services
from service.cache import BlobStore
from service.compiler.importers.detect import HEAD_BYTES
from service.core.digest import Digest
from service.core.errors import InvalidInput, TooLarge

_WRITE_BYTES = 1 << 20  # the number of bytes that are collected before a thread hashes and writes them
_FORM_BYTES = 64 << 10  # the number of bytes by which a multipart form may be larger than its file


@dataclass(frozen=True)
class Received:
    digest: Digest
    size_bytes: int
    head: bytes


async def receive_blob(
    request: Request,
    blobs: BlobStore,
    limit_bytes: int,
    *,
    expected: Digest | None = None,
    head_bytes: int = 64,
    check_head: Callable[[bytes], object] = lambda head: None,
    limit_hint: str | None = "OCTET_MAX_UPLOAD_BYTES raises the limit",
) -> Received:
    """Stores the body of `request`: a raw file, or the only file of a multipart form.

    Args:
        check_head: called with the first `head_bytes` (fewer if the body is shorter) before the rest is read. An
            exception that it raises ends the upload.
        limit_hint: the hint of the error for a body that is too large.

    Raises:
        TooLarge: the body is larger than the limit, according to its declared length or to the bytes that arrived.
        DigestMismatch: the body does not hash to `expected`.
        InvalidInput: the body is empty, or a malformed form.
    """
    _check_declared_length(request, limit_bytes, limit_hint)
    head, pending, size_bytes = b"", bytearray(), 0
    with blobs.writer() as writer:
        async for chunk in _content(request):
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise _too_large(limit_bytes, limit_hint)
            pending += chunk
            if not head and len(pending) >= head_bytes:
                head = bytes(pending[:head_bytes])
                check_head(head)
            if len(pending) >= _WRITE_BYTES:
                await run_in_threadpool(writer.write, bytes(pending))
                pending.clear()
        if not size_bytes:
            raise InvalidInput("the body is empty", hint="send the file's bytes, as curl -T FILE does")
        if not head:
            head = bytes(pending[:head_bytes])
            check_head(head)
        await run_in_threadpool(writer.write, bytes(pending))
        digest = await run_in_threadpool(writer.commit, expected)
    return Received(digest, size_bytes, head)


async def source_of(
    request: Request, services: Services, source: str | None, check_head: Callable[[bytes], object]
) -> Digest:
    """Returns the digest of the file to use: of the body, which this function stores, or of `source`, a blob that is
    already stored.

    Raises:
        InvalidInput: the request has both a body and a source, or neither.
        OctetError: as `receive_blob`.
    """
    if source is None:
        limit_bytes = services.settings.max_upload_bytes
        received = await receive_blob(
            request, services.layout.blobs, limit_bytes, check_head=check_head, head_bytes=HEAD_BYTES
        )
        return received.digest
    if has_body(request):
        raise InvalidInput("the request has both a source and a body", hint="send only one of them")
    await run_in_threadpool(check_source, services, Digest(source))
    return Digest(source)


async def small_body(request: Request, most_bytes: int, hint: str | None = None) -> bytes:
    """Returns the body in memory. Raises `TooLarge`, with `hint`, if it has more than `most_bytes` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise TooLarge(f"the body is larger than {most_bytes} bytes", hint=hint)
    return bytes(body)


def has_body(request: Request) -> bool:
    """Returns true if the request's headers declare a body."""
    return "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"


def _check_declared_length(request: Request, limit_bytes: int, hint: str | None) -> None:
    slack_bytes = _FORM_BYTES if multipart.is_form(request.headers.get("content-type", "")) else 0
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit_bytes + slack_bytes:
        raise _too_large(limit_bytes, hint)


def _too_large(limit_bytes: int, hint: str | None) -> TooLarge:
    return TooLarge(f"the body is larger than {limit_bytes} bytes", hint=hint)


def _content(request: Request) -> AsyncIterator[bytes]:
    content_type = request.headers.get("content-type", "")
    if multipart.is_form(content_type):
        return multipart.only_file(request.stream(), content_type)
    return request.stream()
