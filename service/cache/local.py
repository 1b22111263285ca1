"""Blobs on a local disk, in the OCI image layout.

    root/blobs/sha256/<hex>     complete blobs, verified when written, read-only
    root/uploads/<random>       blobs that are being written; each is locked (flock) by the process that writes it
    root/quarantine/<hex>.<n>   damaged blobs, which no longer match their digest

A blob is written to `uploads` and renamed after its bytes are on the disk, so no crash leaves an incomplete blob under
the name of its digest. A file in `uploads` without a lock was left by a process that died. The next process that opens
the store removes it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from service.cache.durable import locked, storage_errors, sync_directory, write_all
from service.cache.file_locks import LOCK_EX, LOCK_NB, flock
from service.cache.store import Chunk, check_digest
from service.core.digest import Digest, digest_of, parse_digest
from service.core.errors import CorruptBlob, InvalidInput, NotFound

_CHUNK_BYTES = 1 << 20
_Identity = tuple[int, int, int]  # inode, time of the last change in ns, size in bytes


class LocalBlobStore:
    """The blobs in a folder, see `store.BlobStore`. Several threads and processes may use it at the same time.

    Args:
        create: True to create the folders and to remove abandoned uploads. If false, `root` may be a read-only mount.
    """

    def __init__(self, root: Path, *, create: bool = True) -> None:
        self.root = root
        self._blobs = root / "blobs" / "sha256"
        self._uploads = root / "uploads"
        self._quarantine = root / "quarantine"
        self._verified: dict[Digest, _Identity] = {}
        if create:
            with storage_errors():
                self._blobs.mkdir(parents=True, exist_ok=True)
            self._sweep()

    def exists(self, digest: Digest) -> bool:
        return self._path(digest).is_file()

    def size_bytes(self, digest: Digest) -> int:
        return self._status(digest).st_size

    def total_bytes(self) -> int:
        total = 0
        with os.scandir(self._blobs) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # the blob was deleted after it was listed
                    total += entry.stat().st_size
        return total

    def path(self, digest: Digest) -> Path:
        """See `store.BlobStore.path`.

        A process hashes a file again only if its inode, time or size has changed. Otherwise the check is one `fstat`.
        """
        descriptor = self._open(digest)
        try:
            status = os.fstat(descriptor)
            if self._verified.get(digest) != _identity(status):
                if _digest_of_descriptor(descriptor) != digest:
                    raise self._quarantined(digest, status)
                self._verified[digest] = _identity(status)
        finally:
            os.close(descriptor)
        return self._path(digest)

    def read(self, digest: Digest) -> bytes:
        with os.fdopen(self._open(digest), "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
        if digest_of(data) != digest:
            raise self._quarantined(digest, status)
        return data

    def put_bytes(self, data: bytes) -> Digest:
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    def put_file(self, path: Path) -> Digest:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NotFound(f"there is no file {path.name!r} to store") from None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENXIO):  # ELOOP: a symbolic link; ENXIO: a socket
                raise
            raise _not_regular(path) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _not_regular(path)
            if self._can_rename(status):
                return self._take_over(path, descriptor)
            digest = self._copy(descriptor)
        finally:
            os.close(descriptor)
        path.unlink()
        return digest

    def writer(self) -> LocalBlobWriter:
        return LocalBlobWriter(self, *self._new_upload())

    def renew(self, digest: Digest) -> int:
        # If another process deletes the blob now, it either comes first, or finds the blob too young.
        with locked(self._blobs):
            before = self._status(digest)
            os.utime(self._path(digest))
            after = self._status(digest)
        if self._verified.get(digest) == _identity(before):
            self._verified[digest] = _identity(after)
        return after.st_size

    def age_s(self, digest: Digest) -> float:
        return time.time() - self._status(digest).st_mtime

    def delete(self, digest: Digest, min_age_s: float = 0.0) -> bool:
        path = self._path(digest)
        with locked(self._blobs):  # the blob must not be renewed between the check of its age and the deletion
            try:
                if time.time() - path.stat().st_mtime < min_age_s:
                    return False
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def discard_damaged(self, min_age_s: float) -> None:
        until_ns = time.time_ns() - round(min_age_s * 1e9)
        with suppress(FileNotFoundError):  # the folder does not exist, or another process has deleted a file
            for path in list(self._quarantine.iterdir()):
                found_ns = path.name.rpartition(".")[2]
                if found_ns.isdecimal() and int(found_ns) <= until_ns:
                    path.unlink()

    def pin(self, digests: Collection[Digest]) -> None:
        """Does nothing, because this store evicts no blobs."""

    def iterate(self) -> Iterator[Digest]:
        with os.scandir(self._blobs) as entries:
            for entry in entries:
                with suppress(InvalidInput):  # a temporary file of another tool
                    yield parse_digest(f"sha256:{entry.name}")

    def publish(self, descriptor: int, upload: Path, digest: Digest) -> None:
        """Renames a finished upload to the name of its digest. `LocalBlobWriter` calls this.

        If the blob exists already, its file stays, because processes such as the compiler's children may have
        permission to open exactly this file. The blob's age is reset, because the garbage collector may be about to
        delete the blob. A damaged blob is replaced.
        """
        if self._has_whole(digest):
            upload.unlink()
            return
        with storage_errors():
            os.fchmod(descriptor, 0o444)
            os.utime(descriptor)
            os.fsync(descriptor)
            with locked(self._blobs):
                upload.rename(self._path(digest))
            sync_directory(self._blobs)

    def _has_whole(self, digest: Digest) -> bool:
        """Returns true if the blob exists and is not damaged. In this case, also resets the blob's age."""
        try:
            self.path(digest)
            self.renew(digest)
        except (NotFound, CorruptBlob):
            return False
        return True

    def _path(self, digest: Digest) -> Path:
        return self._blobs / parse_digest(digest).removeprefix("sha256:")

    def _status(self, digest: Digest) -> os.stat_result:
        try:
            return self._path(digest).stat()
        except FileNotFoundError:
            raise _not_found(digest) from None

    def _open(self, digest: Digest) -> int:
        try:
            return os.open(self._path(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _not_found(digest) from None

    def _quarantined(self, digest: Digest, damaged: os.stat_result) -> CorruptBlob:
        """Moves the damaged file to the quarantine, unless it was replaced meanwhile. Returns the error to raise."""
        path = self._path(digest)
        try:
            self._quarantine.mkdir(exist_ok=True)
            with locked(self._blobs):
                if path.stat().st_ino == damaged.st_ino:
                    path.rename(self._quarantine / f"{path.name}.{time.time_ns()}")
        except FileNotFoundError:
            pass  # another reader has moved the blob
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            return CorruptBlob(f"blob {digest} is damaged, but is in a read-only folder and cannot be moved away")
        return CorruptBlob(f"blob {digest} was damaged and is now in quarantine", hint="store or build it again")

    def _new_upload(self) -> tuple[int, Path]:
        with storage_errors():
            self._uploads.mkdir(exist_ok=True)
            while True:
                path = self._uploads / os.urandom(16).hex()
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                flock(descriptor, LOCK_EX)
                if os.fstat(descriptor).st_nlink:
                    return descriptor, path
                os.close(descriptor)  # another process's sweep removed the file before it was locked

    def _can_rename(self, status: os.stat_result) -> bool:
        """Returns true if a file can be moved into the store: it is on the same file system and has only one name. A
        file with a second name could still be changed through that name.
        """
        return status.st_nlink == 1 and status.st_dev == self._blobs.stat().st_dev

    def _take_over(self, path: Path, descriptor: int) -> Digest:
        with storage_errors():
            self._uploads.mkdir(exist_ok=True)
        flock(descriptor, LOCK_EX)
        upload = self._uploads / os.urandom(16).hex()
        path.rename(upload)  # renamed before it is hashed, so that no other process can change the file
        try:
            if not os.path.samestat(upload.lstat(), os.fstat(descriptor)):
                raise _not_regular(path)
            digest = _digest_of_descriptor(descriptor)
            self.publish(descriptor, upload, digest)
        finally:
            upload.unlink(missing_ok=True)
        return digest

    def _copy(self, descriptor: int) -> Digest:
        with self.writer() as writer:
            while chunk := os.read(descriptor, _CHUNK_BYTES):
                writer.write(chunk)
            return writer.commit()

    def _sweep(self) -> None:
        if not self._uploads.is_dir():
            return
        for path in self._uploads.iterdir():
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # the upload finished after it was listed
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                path.unlink(missing_ok=True)
            except BlockingIOError:
                pass  # the process that writes the file is alive
            finally:
                os.close(descriptor)


class LocalBlobWriter:
    """Writes a blob to a `LocalBlobStore`, see `store.BlobWriter`."""

    def __init__(self, store: LocalBlobStore, descriptor: int, upload: Path) -> None:
        self._store, self._descriptor, self._upload = store, descriptor, upload
        self._hasher = hashlib.sha256()
        self._open = True
        self.size_bytes = 0

    def write(self, chunk: Chunk) -> None:
        self._check_open()
        with storage_errors():
            write_all(self._descriptor, chunk)
        self._hasher.update(chunk)
        self.size_bytes += memoryview(chunk).nbytes

    def commit(self, expected: Digest | None = None) -> Digest:
        self._check_open()
        digest = Digest("sha256:" + self._hasher.hexdigest())
        check_digest(digest, expected)
        self._store.publish(self._descriptor, self._upload, digest)
        self._close()
        return digest

    def __enter__(self) -> LocalBlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._upload.unlink(missing_ok=True)
            self._close()

    def _check_open(self) -> None:
        if not self._open:
            raise RuntimeError("this blob was already committed or abandoned")

    def _close(self) -> None:
        self._open = False
        os.close(self._descriptor)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_ino, status.st_mtime_ns, status.st_size


def _digest_of_descriptor(descriptor: int) -> Digest:
    hasher = hashlib.sha256()
    offset = 0
    while chunk := os.pread(descriptor, _CHUNK_BYTES, offset):
        hasher.update(chunk)
        offset += len(chunk)
    return Digest("sha256:" + hasher.hexdigest())


def _not_found(digest: Digest) -> NotFound:
    return NotFound(f"there is no blob {digest}")


def _not_regular(path: Path) -> InvalidInput:
    return InvalidInput(f"{path.name!r} is not a regular file, so it cannot be stored")
