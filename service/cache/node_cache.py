"""The part of a bucket's blobs that lies on this machine's disk, to be mapped from there.

root/blobs/sha256/<hex>     as in a local store: whole, verified when written, hashed once per process that maps it
root/fetching/<two digits>  locked by the process that fetches a blob whose digest begins so
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.cache.local import LocalBlobStore
from service.core.digest import Digest, parse_digest
from service.core.errors import CorruptBlob, NotFound, StorageFull

_logger = logging.getLogger(__name__)
# A path that was handed out is opened soon: until then nothing says that it is of use. Less where the disk is full.
_IN_HAND_S, _FULL_IN_HAND_S = 600.0, 30.0
_LOOK_S = 60.0  # other processes put blobs too

Fetch = Callable[[Digest], Iterator[bytes]]


class NodeCache:
    """Safe between threads and processes that share `root`.

    Args:
        max_bytes: the least recently used blobs are evicted beyond it, but none that is mapped or was just asked for.
        fetch: gets a blob's bytes from elsewhere.

    Attributes:
        blobs: the files.
    """

    def __init__(self, root: Path, max_bytes: int, fetch: Fetch) -> None:
        self.blobs = LocalBlobStore(root)
        self._fetching = root / "fetching"
        self._fetching.mkdir(exist_ok=True)
        self._max_bytes, self._fetch = max_bytes, fetch
        self._looked_s, self._room_bytes = -_LOOK_S, 0  # when it was added up last, and what has been left since
        self._pinning = threading.Lock()
        self._pinned: dict[Digest, int] = {}  # descriptors with a shared lock

    def path(self, digest: Digest) -> Path:
        """As `BlobStore.path`; a blob that is not here, or was damaged here, is fetched, by one thread of all."""
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
        """Keeps these from being evicted by any process, as far as they are here; no longer those of the last call."""
        with self._pinning:
            for gone in self._pinned.keys() - set(digests):
                os.close(self._pinned.pop(gone))
            for digest in set(digests) - self._pinned.keys():
                with suppress(FileNotFoundError):
                    descriptor = os.open(self._file(digest), os.O_RDONLY | os.O_CLOEXEC)
                    fcntl.flock(descriptor, fcntl.LOCK_SH)
                    self._pinned[digest] = descriptor

    def added(self, size_bytes: int) -> None:
        """To be called after a blob was put: `make_room`, where it may be due. Files are not added up each time."""
        self._room_bytes -= size_bytes
        if self._room_bytes < 0 or time.monotonic() - self._looked_s >= _LOOK_S:
            self.make_room()

    def make_room(self, is_full: bool = False) -> None:
        """Evicts what is beyond the limit; all that is of no use at the moment, where the disk is full."""
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
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _evict(self, digest: Digest) -> bool:
        """Unless a process has it pinned."""
        try:
            descriptor = os.open(self._file(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
