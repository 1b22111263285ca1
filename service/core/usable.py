"""Why a file or folder of the data directory cannot be used, and what to do about it."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path

from service.core.errors import DataUnusable
from service.core.printable import printable

_FULL = (errno.ENOSPC, errno.EDQUOT)


def check_writable(folder: Path) -> None:
    """Makes the folder if it does not exist, and a file in it, which it removes. A full disk passes: that may change
    while the server runs, and the server reports it then.

    Raises:
        DataUnusable: files cannot be written there.
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
    """The error for a path of the data directory that could not be read or written."""
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
    """Names the owner of the nearest folder or file that exists, and this process's user."""
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
