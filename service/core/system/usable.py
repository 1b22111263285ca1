"""Checks that the data directory can be written, and explains why a file or folder in it cannot be used."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

from service.core.errors import DataUnusable
from service.core.printable import printable

_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_writable(folder: Path) -> None:
    """Checks that files can be written to a folder, by creating and removing one. Creates the folder if it is missing.

    A full disk passes the check: space may be freed while the server runs, and the server reports a full disk itself.

    Raises:
        DataUnusable: no file can be created in the folder.
    """
    probe = folder / f".write-test.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        if error.errno not in _FULL:
            raise unusable(folder, error) from error


def unusable(path: Path, error: OSError) -> DataUnusable:
    """Returns the error for a path of the data directory that could not be read or written."""
    reason = error.strerror or str(error)
    return DataUnusable(f"{printable(str(path))} cannot be used: {reason}", hint=_hint(path, error.errno))


def _hint(path: Path, number: int | None) -> str:
    other = "choose another folder with --data-dir (OCTET_DATA_DIR)"
    match number:
        case errno.EROFS:
            return f"its file system is mounted read-only: mount it so that it can be written, or {other}"
        case errno.EACCES | errno.EPERM:
            return f"{_owners(path)}: change the owner or the permissions, or {other}"
        case errno.ENOTDIR | errno.EEXIST:
            return f"a file is where the folder should be: move it away, or {other}"
        case errno.EIO:
            return "the disk reports an error: look at the log of the kernel (dmesg)"
    return other


def _owners(path: Path) -> str:
    """Returns a phrase with the owner of `path`, or of its nearest parent that exists, and this process's user."""
    for each in (path, *path.absolute().parents):
        try:
            owner = each.stat().st_uid
        except OSError:
            continue
        return f"{printable(str(each))} belongs to {_user(owner)}, and this process runs as {_user(os.geteuid())}"
    return f"this process runs as {_user(os.geteuid())}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
