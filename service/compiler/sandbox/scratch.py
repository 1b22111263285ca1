"""Temporary directories to which a hostile child may write. The directories are removed afterwards, whatever they
contain.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch_directory(within: Path, prefix: str = "scratch-") -> Iterator[Path]:
    """Creates a directory in `within` that only its owner can read, and removes it on exit."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
    try:
        yield path
    finally:
        remove_tree(path)


def remove_tree(root: Path) -> None:
    """Removes `root`. Unlike `shutil.rmtree`, it can remove directories without permissions, and directories that are
    nested thousands of levels deep.

    Links are not followed. Each inner directory is first moved directly into `root` and then emptied, so that neither
    path lengths nor recursion grow with the depth.
    """
    pending = [root]
    moved = 0
    while pending:
        directory = pending[-1]
        directory.chmod(0o700)
        inner = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    inner.append(entry.name)
                else:
                    Path(entry.path).unlink()
        for name in inner:
            # Moving a directory needs write access to it, because ".." is an entry of it.
            (directory / name).chmod(0o700)
            moved += 1
            home = _unused(root, moved)
            (directory / name).rename(home)
            pending.append(home)
        if not inner:
            directory.rmdir()
            pending.pop()


def _unused(root: Path, number: int) -> Path:
    name = root / f".removed-{number}"
    while name.exists():
        name = name.with_name(name.name + "_")
    return name
