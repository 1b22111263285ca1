"""The port to stored bytes: in a folder (`LocalBlobStore`) or in a bucket (`BucketBlobStore`).

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
    """A blob on its way in: a context manager that leaves nothing behind unless `commit` returned."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes written so far."""

    def write(self, chunk: Chunk) -> None:
        """Raises `StorageFull`."""

    def commit(self, expected: Digest | None = None) -> Digest:
        """Makes the blob visible, whole and durable; its digest. Nothing can be written afterwards.

        Raises:
            DigestMismatch: what was written is not `expected`.
            StorageFull: no space is left.
        """

    def __enter__(self) -> BlobWriter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BlobStore(Protocol):
    """Immutable bytes under the name of their digest. Bytes that no longer fit their name are never handed out."""

    def exists(self, digest: Digest) -> bool: ...

    def size_bytes(self, digest: Digest) -> int:
        """Raises `NotFound`."""

    def total_bytes(self) -> int:
        """The total size of all blobs."""

    def path(self, digest: Digest) -> Path:
        """A local file with the blob's bytes, to be mapped into memory. It must not be written to.

        Raises:
            NotFound: there is no such blob.
            CorruptBlob: its bytes are damaged; from now on there is no such blob.
        """

    def read(self, digest: Digest) -> bytes:
        """The bytes, hashed before they are handed out. Raises as `path` does."""

    def put_bytes(self, data: bytes) -> Digest:
        """Raises `StorageFull`."""

    def put_file(self, path: Path) -> Digest:
        """Moves the regular file at `path` into the store. No process may have it open for writing.

        Raises:
            InvalidInput: there is a symbolic link or something else that is not a regular file.
            NotFound: there is nothing.
            StorageFull: it had to be copied, and no space is left.
        """

    def writer(self) -> BlobWriter: ...

    def renew(self, digest: Digest) -> int:
        """Resets the blob's age, so that a client that was told of it has time to use it. Returns its size. Raises
        `NotFound`.
        """

    def age_s(self, digest: Digest) -> float:
        """The time since it was last put. Raises `NotFound`."""

    def delete(self, digest: Digest, min_age_s: float = 0.0) -> bool:
        """Forgets the blob, if it is there and was last put at least so long ago; whether it did."""

    def discard_damaged(self, min_age_s: float) -> None:
        """Deletes blobs that were found damaged at least this long ago, and had been kept for diagnosis."""

    def pin(self, digests: Collection[Digest]) -> None:
        """What this process, or one that it looks after, maps from now on: where files are evicted, these are not."""

    def iterate(self) -> Iterator[Digest]:
        """Every blob, in no order."""


def check_digest(digest: Digest, expected: Digest | None) -> None:
    """Raises `DigestMismatch` unless `digest` is what was expected, if anything was."""
    if expected is not None and digest != expected:
        raise DigestMismatch(f"the bytes hash to {digest}, not to {expected}", hint="send the file again")
