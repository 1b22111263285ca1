"""A blob store in memory."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType

from service.cache.store import Chunk, check_digest
from service.core.digest import Digest, digest_of, parse_digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound


class MemoryBlobStore:
    """Implements `service.cache.store.BlobStore` for tests. Several threads may use it.

    Attributes:
        blobs: the stored blobs; a test may damage them.
        quarantine: the blobs that were found damaged.
    """

    def __init__(self) -> None:
        self.blobs: dict[Digest, bytes] = {}
        self.quarantine: dict[Digest, bytes] = {}
        self._put_at: dict[Digest, float] = {}
        self._folder: Path | None = None
        self._lock = threading.Lock()

    def exists(self, digest: Digest) -> bool:
        return parse_digest(digest) in self.blobs

    def size_bytes(self, digest: Digest) -> int:
        return len(self._stored(digest))

    def total_bytes(self) -> int:
        return sum(map(len, list(self.blobs.values())))

    def path(self, digest: Digest) -> Path:
        """Writes the blob to a temporary file, which is removed with the store. See `store.BlobStore.path`."""
        data = self.read(digest)
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="octet-blobs-"))
                weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
            path = self._folder / digest.removeprefix("sha256:")
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            path.chmod(0o444)
        return path

    def read(self, digest: Digest) -> bytes:
        data = self._stored(digest)
        if digest_of(data) != digest:
            self.quarantine[digest] = data
            self.delete(digest)
            raise CorruptBlob(f"blob {digest} was damaged and is now in quarantine", hint="store or build it again")
        return data

    def put_bytes(self, data: bytes) -> Digest:
        digest = digest_of(data)
        with self._lock:
            self._put_at[digest] = time.time()
            self.blobs[digest] = bytes(data)
        return digest

    def put_file(self, path: Path) -> Digest:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise InvalidInput(f"{path.name!r} is not a regular file, so it cannot be stored")
        try:
            digest = self.put_bytes(path.read_bytes())
        except FileNotFoundError:
            raise NotFound(f"there is no file {path.name!r} to store") from None
        path.unlink()
        return digest

    def writer(self) -> MemoryBlobWriter:
        return MemoryBlobWriter(self)

    def renew(self, digest: Digest) -> int:
        with self._lock:
            size_bytes = len(self._stored(digest))
            self._put_at[digest] = time.time()
        return size_bytes

    def age_s(self, digest: Digest) -> float:
        self._stored(digest)
        return time.time() - self._put_at[digest]

    def delete(self, digest: Digest, min_age_s: float = 0.0) -> bool:
        with self._lock:
            if parse_digest(digest) not in self.blobs or time.time() - self._put_at[digest] < min_age_s:
                return False
            del self.blobs[digest]
            return True

    def discard_damaged(self, min_age_s: float) -> None:
        for digest in [each for each in self.quarantine if time.time() - self._put_at[each] >= min_age_s]:
            del self.quarantine[digest]

    def pin(self, digests: Collection[Digest]) -> None:
        """Does nothing, because this store does not evict blobs."""

    def iterate(self) -> Iterator[Digest]:
        return iter(list(self.blobs))

    def _stored(self, digest: Digest) -> bytes:
        try:
            return self.blobs[parse_digest(digest)]
        except KeyError:
            raise NotFound(f"there is no blob {digest}") from None


class MemoryBlobWriter:
    """Writes a blob to a `MemoryBlobStore`, see `store.BlobWriter`."""

    def __init__(self, store: MemoryBlobStore) -> None:
        self._store = store
        self._data = bytearray()
        self._open = True

    @property
    def size_bytes(self) -> int:
        return len(self._data)

    def write(self, chunk: Chunk) -> None:
        self._check_open()
        self._data += chunk

    def commit(self, expected: Digest | None = None) -> Digest:
        self._check_open()
        data = bytes(self._data)
        check_digest(digest_of(data), expected)
        self._open = False
        return self._store.put_bytes(data)

    def __enter__(self) -> MemoryBlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("this blob was already committed or abandoned")
