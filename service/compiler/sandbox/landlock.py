"""Landlock: permanently restricts the files that this process can access, and denies TCP.

See https://docs.kernel.org/userspace-api/landlock.html. Every right that the running kernel supports is denied unless a
rule grants it. New threads and programs inherit a restriction, but other threads that are already running do not.
Therefore call `restrict` while the process has one thread.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

from service.compiler.sandbox.kernel import syscall


class Right(enum.IntFlag):
    """LANDLOCK_ACCESS_FS_*."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Right.READ_FILE | Right.READ_DIR
# These rights allow regular files and directories only, so the code that collects the results need not handle links,
# pipes and devices.
WRITE = (
    READ
    | Right.WRITE_FILE
    | Right.TRUNCATE
    | Right.MAKE_REG
    | Right.MAKE_DIR
    | Right.REMOVE_FILE
    | Right.REMOVE_DIR
    | Right.REFER
)
EXECUTE = Right.EXECUTE | Right.READ_FILE
USE_DEVICE = Right.READ_FILE | Right.WRITE_FILE

# The rights that a rule can grant for a file that is not a directory.
_FILE_RIGHTS = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
# ABI version -> the highest file system right it introduced.
_NEWEST_RIGHT = {1: Right.MAKE_SYM, 2: Right.REFER, 3: Right.TRUNCATE, 5: Right.IOCTL_DEV}
_NET_TCP = 0b11  # bind and connect; ABI 4
_SCOPES = 0b11  # abstract unix sockets and signals; ABI 6

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1


def abi() -> int:
    """Returns the kernel's Landlock ABI version, or 0 if it is not available or was disabled at boot."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)
    except OSError as error:
        # EPERM: an outer seccomp filter denies the call
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def handled_rights(version: int) -> Right:
    """Returns all file system rights that ABI `version` can deny."""
    newest = max(right for since, right in _NEWEST_RIGHT.items() if since <= version)
    return Right((newest << 1) - 1)


def restrict(rules: Iterable[tuple[Path, Right]]) -> None:
    """Denies the calling thread access to all files that `rules` do not allow, all TCP ports, and signals to other
    processes.

    The call requires no_new_privs, but no privilege. The restriction cannot be removed.

    Raises:
        OSError: the kernel does not have Landlock, or a path cannot be opened.
    """
    version = abi()
    if version == 0:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    handled = handled_rights(version)
    attributes = [int(handled)]
    if version >= 4:
        attributes.append(_NET_TCP)
    if version >= 6:
        attributes.append(_SCOPES)
    packed = struct.pack(f"={len(attributes)}Q", *attributes)
    ruleset = syscall("landlock_create_ruleset", ctypes.create_string_buffer(packed, len(packed)), len(packed), 0)
    try:
        for path, rights in rules:
            _allow(ruleset, path, rights & handled)
        syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: Right) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", int(rights), descriptor)
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, ctypes.create_string_buffer(rule, len(rule)), 0)
    finally:
        os.close(descriptor)
