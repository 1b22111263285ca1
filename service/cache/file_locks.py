"""Locks of files (flock). Windows has no module `fcntl`: a client there imports the store, but cannot use it."""

from __future__ import annotations

from service.core.errors import Unsupported

LOCK_SH, LOCK_EX, LOCK_NB, LOCK_UN = 1, 2, 4, 8  # flock(2)


def flock(descriptor: int, operation: int) -> None:
    """Locks or unlocks an open file, as `fcntl.flock` does.

    Raises:
        BlockingIOError: `operation` includes LOCK_NB, and another process holds the lock.
        Unsupported: the system has no such locks.
    """
    try:
        import fcntl
    except ModuleNotFoundError as error:
        raise Unsupported("the store needs Linux: on this system, Octet is a client") from error
    fcntl.flock(descriptor, operation)
