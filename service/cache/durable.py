"""Writes files that are complete or absent, even if a process is killed at any time; and locks folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.cache.file_locks import LOCK_EX, LOCK_UN, flock
from service.core.errors import StorageFull


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the lock of `directory` against all other threads and processes. The kernel frees it if this process dies.

    The folder itself is locked (flock), so that a layout needs no additional lock file.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        # closing the descriptor may not free the lock: a child that was forked in the meantime has it open too
        flock(descriptor, LOCK_UN)
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Makes sure that the names in `directory` survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Converts the kernel's errors for a full disk or an exceeded quota to `StorageFull`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(hint="free some space; octet gc deletes unused files") from error
        raise


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    rest = memoryview(data).cast("B")
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def replace_file(path: Path, data: bytes) -> None:
    """Replaces the content of `path` by `data`, atomically: a reader sees the old bytes or the new ones.

    All writers of `path` must hold the same lock, so any temporary file beside it was left by a process that died.
    """
    for left in path.parent.glob(f".{path.name}.*"):
        left.unlink()
    temporary = path.with_name(f".{path.name}.{os.urandom(16).hex()}")
    try:
        with storage_errors():
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
            sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
