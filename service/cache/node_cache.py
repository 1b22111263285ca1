"""A cache, on this machine's disk, of the blobs in a bucket. Processes map the blobs from there.

root/blobs/sha256/<hex>     complete blobs, as in a local store: verified when written, hashed once per process
root/fetching/<two digits>  locked by the process that fetches a blob whose digest begins with these digits
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.cache.file_locks import LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, flock
from service.cache.local import LocalBlobStore
from service.core.digest import Digest, parse_digest
from service.core.errors import CorruptBlob, NotFound, StorageFull

_logger = logging.getLogger(__name__)
# A blob whose path was returned is not evicted for this long, so that the caller has time to open it. The second time
# applies if the disk is full.
_IN_HAND_S, _FULL_IN_HAND_S = 600.0, 30.0
_LOOK_S = 60.0  # the size of the cache is summed up again after this time, because other processes add blobs too

Fetch = Callable[[Digest], Iterator[bytes]]


class NodeCache:
    """A cache of blobs. Several threads and processes may use it at the same time.

    Args:
        max_bytes: the size limit. Beyond it, the least recently used blobs are evicted, except pinned blobs and those
            requested a short time ago.
        fetch: a function that downloads a blob's bytes.

    Attributes:
        blobs: the store of the cached files.
    """

    def __init__(self, root: Path, max_bytes: int, fetch: Fetch) -> None:
        self.blobs = LocalBlobStore(root)
        self._fetching = root / "fetching"
        self._fetching.mkdir(exist_ok=True)
        self._max_bytes, self._fetch = max_bytes, fetch
        # when the sizes of all files were last added up; the bytes that are still free
        self._looked_s, self._room_bytes = -_LOOK_S, 0
        self._pinning = threading.Lock()
        self._pinned: dict[Digest, int] = {}  # digest -> file descriptor that holds a shared lock

    def path(self, digest: Digest) -> Path:
        """Returns the path of a blob as `BlobStore.path` does. Fetches the blob first if it is not cached or is
        damaged.

        Only one thread of all processes fetches a blob at a time.
        """
        found = self._here(digest)
        if found is None:
            with self._alone(digest):
                found = self._here(digest)
                if found is None:
                    self._bring(digest)
                    found = self.blobs.path(digest)
        self._used(found)
        return found

    def pin(self, digests: Collection[Digest]) -> None:
        """Protects those of these blobs that are cached from eviction by any process. The blobs of the previous call
        are no longer protected.
        """
        with self._pinning:
            for gone in self._pinned.keys() - set(digests):
                os.close(self._pinned.pop(gone))
            for digest in set(digests) - self._pinned.keys():
                with suppress(FileNotFoundError):
                    descriptor = os.open(self._file(digest), os.O_RDONLY | os.O_CLOEXEC)
                    flock(descriptor, LOCK_SH)
                    self._pinned[digest] = descriptor

    def added(self, size_bytes: int) -> None:
        """Calls `make_room` if the cache may be full. Call this after adding a blob of this size.

        The cache keeps an estimate of the free space, so that the files need not be summed up each time.
        """
        self._room_bytes -= size_bytes
        if self._room_bytes < 0 or time.monotonic() - self._looked_s >= _LOOK_S:
            self.make_room()

    def make_room(self, is_full: bool = False) -> None:
        """Evicts blobs until the cache is within its limit.

        Args:
            is_full: True if the disk is full. All blobs that are not in use are then evicted.
        """
        self._looked_s = time.monotonic()
        found = []
        for digest in self.blobs.iterate():
            with suppress(FileNotFoundError):
                status = self._file(digest).stat()
                found.append((status.st_atime, digest, status.st_size))
        total_bytes = sum(size_bytes for _, _, size_bytes in found)
        spare_s = time.time() - (_FULL_IN_HAND_S if is_full else _IN_HAND_S)
        for used_s, digest, size_bytes in sorted(found):
            if used_s > spare_s or (total_bytes <= self._max_bytes and not is_full):
                break
            if self._evict(digest):
                total_bytes -= size_bytes
        self._room_bytes = self._max_bytes - total_bytes
        if total_bytes > self._max_bytes:
            _logger.warning("%d bytes of the store are in use here, more than store_cache_bytes", total_bytes)

    def _here(self, digest: Digest) -> Path | None:
        try:
            return self.blobs.path(digest)
        except NotFound:
            return None
        except CorruptBlob as error:
            _logger.warning("%s; it is fetched again", error)
            return None

    def _bring(self, digest: Digest) -> None:
        try:
            self._write(digest)
        except StorageFull:
            self.make_room(is_full=True)
            self._write(digest)
        self.added(self._file(digest).stat().st_size)

    def _write(self, digest: Digest) -> None:
        with self.blobs.writer() as writer:
            for chunk in self._fetch(digest):
                writer.write(chunk)
            writer.commit(digest)

    @contextmanager
    def _alone(self, digest: Digest) -> Iterator[None]:
        name = parse_digest(digest).removeprefix("sha256:")[:2]
        descriptor = os.open(self._fetching / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            flock(descriptor, LOCK_EX)
            yield
        finally:
            flock(descriptor, LOCK_UN)
            os.close(descriptor)

    def _evict(self, digest: Digest) -> bool:
        """Deletes a blob unless a process has pinned it. Returns true if the blob is gone."""
        try:
            descriptor = os.open(self._file(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            flock(descriptor, LOCK_EX | LOCK_NB)
            return self.blobs.delete(digest)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)

    def _used(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))

    def _file(self, digest: Digest) -> Path:
        return self.blobs.root / "blobs" / "sha256" / parse_digest(digest).removeprefix("sha256:")
