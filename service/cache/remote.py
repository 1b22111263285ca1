"""Blobs in a bucket that several machines share. Each machine has a cache of them on its disk.

blobs/sha256/<hex>        complete blobs, as in an OCI image layout
renewed/<hex>             an empty object, whose time is the time of the last `renew` of the blob
quarantine/<hex>.<time>   damaged blobs, which no longer match their digest
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from service.cache.bucket import Bucket, ObjectInfo
from service.cache.local import LocalBlobWriter
from service.cache.node_cache import NodeCache
from service.cache.store import Chunk
from service.core.digest import Digest, parse_digest
from service.core.errors import CorruptBlob, DigestMismatch, InvalidInput, NotFound

_BLOBS, _RENEWED, _QUARANTINE = "blobs/sha256/", "renewed/", "quarantine/"


class BucketBlobStore:
    """The blobs in a bucket, see `store.BlobStore`.

    Every method may also raise `StoreUnreachable`. For blobs in the cache, `path` and `read` do not contact the bucket.

    An age is the difference between this machine's clock and a time set by the bucket's clock. The two clocks must
    differ by much less than an hour.

    Args:
        cache: the folder of the cache on this machine.
        cache_bytes: the size limit of the cache, see `NodeCache`.
    """

    def __init__(self, bucket: Bucket, cache: Path, cache_bytes: int, now_s: Callable[[], float] = time.time) -> None:
        self.bucket, self._now_s = bucket, now_s
        self.cache = NodeCache(cache, cache_bytes, self._fetch)

    def exists(self, digest: Digest) -> bool:
        return self.bucket.head(_name(digest)) is not None

    def size_bytes(self, digest: Digest) -> int:
        return self._info(digest).size_bytes

    def total_bytes(self) -> int:
        """The total size of the blobs in this machine's cache."""
        return self.cache.blobs.total_bytes()

    def path(self, digest: Digest) -> Path:
        try:
            return self.cache.path(digest)
        except DigestMismatch:
            pass  # the blob was damaged in transit or in the bucket: fetch it once more
        try:
            return self.cache.path(digest)
        except DigestMismatch as error:
            self._quarantine(digest)
            raise CorruptBlob(
                f"blob {digest} was damaged in the bucket and is now in quarantine", hint="store or build it again"
            ) from error

    def read(self, digest: Digest) -> bytes:
        return self.path(digest).read_bytes()

    def put_bytes(self, data: bytes) -> Digest:
        return self._upload(self.cache.blobs.put_bytes(data))

    def put_file(self, path: Path) -> Digest:
        return self._upload(self.cache.blobs.put_file(path))

    def writer(self) -> BucketBlobWriter:
        return BucketBlobWriter(self, self.cache.blobs.writer())

    def renew(self, digest: Digest) -> int:
        size_bytes = self._info(digest).size_bytes
        self.bucket.put(_RENEWED + _hex(digest), b"")
        return size_bytes

    def age_s(self, digest: Digest) -> float:
        renewed = self.bucket.head(_RENEWED + _hex(digest))
        return self._now_s() - max(self._info(digest).put_at_s, renewed.put_at_s if renewed else 0.0)

    def delete(self, digest: Digest, min_age_s: float = 0.0) -> bool:
        try:
            if min_age_s and self.age_s(digest) < min_age_s:
                return False
            self._info(digest)
        except NotFound:
            return False
        self.bucket.delete(_name(digest))
        self.bucket.delete(_RENEWED + _hex(digest))
        self.cache.blobs.delete(digest)
        return True

    def discard_damaged(self, min_age_s: float) -> None:
        self.cache.blobs.discard_damaged(min_age_s)
        for found in list(self.bucket.list(_QUARANTINE)):
            # With 0, ages are not compared: S3 reports whole seconds, so the age of a new object could be negative.
            if not min_age_s or self._now_s() - found.put_at_s >= min_age_s:
                self.bucket.delete(found.name)

    def iterate(self) -> Iterator[Digest]:
        for found in self.bucket.list(_BLOBS):
            with suppress(InvalidInput):  # another tool stored the object
                yield parse_digest(f"sha256:{found.name.removeprefix(_BLOBS)}")

    def pin(self, digests: Collection[Digest]) -> None:
        self.cache.pin(digests)

    def _upload(self, digest: Digest) -> Digest:
        """Copies a blob from the cache to the bucket. If the bucket has the blob already, only the blob's age is
        reset.
        """
        found = self.bucket.head(_name(digest))
        path = self.cache.path(digest)
        if found is not None and found.size_bytes == path.stat().st_size:
            self.bucket.put(_RENEWED + _hex(digest), b"")
        else:
            self.bucket.put(_name(digest), path)
        self.cache.added(path.stat().st_size)
        return digest

    def _fetch(self, digest: Digest) -> Iterator[bytes]:
        try:
            yield from self.bucket.get(_name(digest))
        except NotFound:
            raise NotFound(f"there is no blob {digest}") from None

    def _quarantine(self, digest: Digest) -> None:
        self.bucket.move(_name(digest), f"{_QUARANTINE}{_hex(digest)}.{time.time_ns()}")

    def _info(self, digest: Digest) -> ObjectInfo:
        found = self.bucket.head(_name(digest))
        if found is None:
            raise NotFound(f"there is no blob {digest}")
        return found


class BucketBlobWriter:
    """Writes a blob to the cache and then to the bucket, see `store.BlobWriter`."""

    def __init__(self, store: BucketBlobStore, local: LocalBlobWriter) -> None:
        self._store, self._local = store, local

    @property
    def size_bytes(self) -> int:
        return self._local.size_bytes

    def write(self, chunk: Chunk) -> None:
        self._local.write(chunk)

    def commit(self, expected: Digest | None = None) -> Digest:
        return self._store._upload(self._local.commit(expected))

    def __enter__(self) -> BucketBlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.__exit__(kind, error, trace)


def _hex(digest: Digest) -> str:
    return parse_digest(digest).removeprefix("sha256:")


def _name(digest: Digest) -> str:
    return _BLOBS + _hex(digest)
