"""Working folders of build attempts: one for each, locked by its process, and swept when that process is gone.

The lock is on the directory itself (flock), where the compiler's children, who write below it, cannot remove it.
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
    """A new directory inside `root` for one attempt; removed on leaving."""
    path, descriptor = _make(root, name)
    try:
        yield path
    finally:
        try:
            remove_tree(path)
        finally:
            os.close(descriptor)


def sweep(root: Path) -> int:
    """Removes what dead processes left in `root`; how many directories that were."""
    if not root.is_dir():
        return 0
    removed = 0
    for path in root.iterdir():
        with suppress(FileNotFoundError, NotADirectoryError, BlockingIOError):  # its owner was faster, or lives
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _logger.info("removing %s, which a process that is gone left behind", path.name)
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
        with suppress(FileNotFoundError, BlockingIOError):  # a sweep came between and took it for a dead process's
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.exists():
                    return path, descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
