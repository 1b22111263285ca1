"""Garbage collection of unreachable blobs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from service.cache.oci import LARGEST_MANIFEST_BYTES
from service.cache.store import BlobStore
from service.core.digest import Digest, parse_digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound

_logger = logging.getLogger(__name__)
# Blobs younger than this are never deleted. A client refers to a blob moments after storing it; an hour leaves time for
# a machine that is suspended in between.
MIN_AGE_S = 3600.0


@dataclass(frozen=True)
class Collected:
    """The blobs that a garbage collection deleted."""

    digests: tuple[Digest, ...]
    size_bytes: int


def collect(blobs: BlobStore, roots: Iterable[Digest], min_age_s: float) -> Collected:
    """Deletes every blob that is older than `min_age_s` and not reachable from `roots`.

    The caller must hold the layout's lock.
    """
    reachable = reachable_from(blobs, roots)
    deleted, size_bytes = [], 0
    for digest in list(blobs.iterate()):
        if digest in reachable:
            continue
        with suppress(NotFound):  # a reader has moved the blob to the quarantine since the blob was listed
            blob_bytes = blobs.size_bytes(digest)
            if blobs.delete(digest, min_age_s):
                size_bytes += blob_bytes
                deleted.append(digest)
    return Collected(tuple(deleted), size_bytes)


def reachable_from(blobs: BlobStore, roots: Iterable[Digest]) -> set[Digest]:
    """Returns `roots` and everything that the manifests and indexes among them refer to: configs, layers and manifests.

    A `subject` is not followed: a report does not keep alive the manifest that it is about.
    """
    reachable: set[Digest] = set()
    pending = list(roots)
    while pending:
        digest = pending.pop()
        if digest in reachable:
            continue
        reachable.add(digest)
        document = _manifest_like(blobs, digest)
        reachable.update(_references(document, "config", "layers"))
        pending.extend(_references(document, "manifests"))
    return reachable


def _manifest_like(blobs: BlobStore, digest: Digest) -> dict[str, Any]:
    try:
        if blobs.size_bytes(digest) > LARGEST_MANIFEST_BYTES:
            return {}
        document = json.loads(blobs.read(digest))
    except (NotFound, CorruptBlob, InvalidInput) as error:  # blobs that only this blob refers to are useless then
        _logger.warning("collecting garbage: %s", error)
        return {}
    except (ValueError, RecursionError):
        return {}  # a root that is not a manifest, such as a model file
    return document if isinstance(document, dict) and document.get("schemaVersion") == 2 else {}


def _references(document: dict[str, Any], *members: str) -> Iterator[Digest]:
    for member in members:
        value = document.get(member)
        for descriptor in value if isinstance(value, list) else [value]:
            if isinstance(descriptor, dict):
                with suppress(InvalidInput):  # digests of other algorithms are not used in this store
                    yield parse_digest(str(descriptor.get("digest")))
