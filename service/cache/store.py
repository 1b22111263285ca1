"""The interface of blob stores: `LocalBlobStore` for a folder, `BucketBlobStore` for a bucket.

Tests also use a store in memory (`tests/support/memory_store.py`). One test suite checks all three.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Protocol

from service.core.digest import Digest
from service.core.errors import DigestMismatch

Chunk = bytes | bytearray | memoryview


class BlobWriter(Protocol):
    """A blob that is being written. It is a context manager, and stores nothing unless `commit` returned."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""

    def write(self, chunk: Chunk) -> None:
        """Appends bytes. Raises `StorageFull` if no space is left."""

    def commit(self, expected: Digest | None = None) -> Digest:
        """Stores the blob durably, makes it visible, and returns its digest. Nothing can be written afterwards.

        Raises:
            DigestMismatch: the digest of the bytes is not `expected`.
            StorageFull: no space is left.
        """

    def __enter__(self) -> BlobWriter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BlobStore(Protocol):
    """A store of immutable blobs, named by their digests. It never returns bytes that do not match their digest."""

    def exists(self, digest: Digest) -> bool: ...

    def size_bytes(self, digest: Digest) -> int:
        """Returns the size of a blob. Raises `NotFound` if the store does not have it."""

    def total_bytes(self) -> int:
        """Returns the total size of all blobs."""

    def path(self, digest: Digest) -> Path:
        """Returns the path of a local file with the blob's bytes, for mapping into memory. The file must not be
        changed.

        Raises:
            NotFound: the store does not have the blob.
            CorruptBlob: the bytes are damaged. The store has removed the blob.
        """

    def read(self, digest: Digest) -> bytes:
        """Returns the blob's bytes after checking their digest. Raises `NotFound` and `CorruptBlob` as `path` does."""

    def put_bytes(self, data: bytes) -> Digest:
        """Stores a blob. Raises `StorageFull` if no space is left."""

    def put_file(self, path: Path) -> Digest:
        """Moves the regular file at `path` into the store. No process may have it open for writing.

        Raises:
            InvalidInput: the file is a symbolic link or otherwise not a regular file.
            NotFound: the file does not exist.
            StorageFull: the file had to be copied, and no space is left.
        """

    def writer(self) -> BlobWriter: ...

    def renew(self, digest: Digest) -> int:
        """Resets the blob's age, so that a client that got its digest has time to use it. Returns the blob's size.

        Raises:
            NotFound: the store does not have the blob.
        """

    def age_s(self, digest: Digest) -> float:
        """Returns the time since the blob was last put or renewed. Raises `NotFound` if the store does not have it."""

    def delete(self, digest: Digest, min_age_s: float = 0.0) -> bool:
        """Deletes the blob if its age is at least `min_age_s`. Returns true if it deleted the blob."""

    def discard_damaged(self, min_age_s: float) -> None:
        """Deletes damaged blobs in the quarantine that were found at least `min_age_s` ago."""

    def pin(self, digests: Collection[Digest]) -> None:
        """Sets the blobs that this process, or a process that it supervises, uses. A cache does not evict these
        blobs.
        """

    def iterate(self) -> Iterator[Digest]:
        """Yields the digest of every blob, in no particular order."""


def check_digest(digest: Digest, expected: Digest | None) -> None:
    """Raises `DigestMismatch` if `digest` differs from `expected`; None accepts any digest."""
    if expected is not None and digest != expected:
        raise DigestMismatch(f"the bytes hash to {digest}, not to {expected}", hint="send the file again")
