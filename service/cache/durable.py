"""Files that are whole or absent, whatever is killed when; and the one lock of a folder."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.core.errors import StorageFull


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Holds the lock of `directory` against every other thread and process; the kernel frees it if we die.

    The folder itself is what is locked (flock), so that a layout holds no file that is not part of it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child forked meanwhile has the descriptor too: closing is not enough
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Makes the names in `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Turns the kernel's ways of saying that the disk is full into `StorageFull`."""
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
    """`path` holds its old bytes or `data`, never anything between.

    Every writer of `path` holds the same lock, so a file beside it was left by a process that is gone.
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
