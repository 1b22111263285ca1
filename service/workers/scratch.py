"""Working folders of build attempts. Each is locked by its process, and is removed by `sweep` after that process has
died.

The lock is on the directory itself (flock). The compiler's child processes can only write below the directory, so they
cannot remove the lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.compiler.sandbox.scratch import remove_tree

_logger = logging.getLogger(__name__)


@contextmanager
def attempt_directory(root: Path, name: str) -> Iterator[Path]:
    """Creates a directory inside `root` for one attempt, locks it, and removes it on leaving."""
    path, descriptor = _make(root, name)
    try:
        yield path
    finally:
        try:
            remove_tree(path)
        finally:
            os.close(descriptor)


def sweep(root: Path) -> int:
    """Removes the directories that dead processes left in `root`, and returns their number."""
    if not root.is_dir():
        return 0
    removed = 0
    for path in root.iterdir():
        # another sweep removed the directory first, or the directory's owner is still running
        with suppress(FileNotFoundError, NotADirectoryError, BlockingIOError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _logger.info("removing %s, left behind by a process that has ended", path.name)
                remove_tree(path)
                removed += 1
            finally:
                os.close(descriptor)
    return removed


def _make(root: Path, name: str) -> tuple[Path, int]:
    root.mkdir(parents=True, exist_ok=True)
    while True:
        path = root / f"{name}-{uuid.uuid4().hex[:8]}"
        path.mkdir(mode=0o700)
        # a concurrent sweep removed the directory, because it was not locked yet
        with suppress(FileNotFoundError, BlockingIOError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists():
                    return path, descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
