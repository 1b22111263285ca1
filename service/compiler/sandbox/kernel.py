"""System calls for which Python has no function, made with ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from service.compiler.sandbox.syscalls import numbers

_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def architecture() -> str:
    return platform.machine()


def is_known_architecture() -> bool:
    return architecture() in ("x86_64", "aarch64")


def syscall(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> int:
    """Makes the system call `name`. Integers are passed as 64-bit values, arrays by address.

    Raises:
        OSError: the kernel returned an error. ENOSYS may also mean that the number of the call is not known.
    """
    if not is_known_architecture():
        raise OSError(errno.ENOSYS, f"{name}: no system call table for {architecture()}")
    return _checked(_libc.syscall(ctypes.c_long(numbers(architecture())[name]), *map(_register, arguments)), name)


def drop_capabilities() -> None:
    """Drops all capabilities of this thread (capset(2) with empty sets)."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    nothing = ctypes.create_string_buffer(24)  # effective, permitted, inheritable; two words each
    _checked(_libc.capset(ctypes.create_string_buffer(header, len(header)), nothing), "capset")


def prctl(option: int, *arguments: int) -> int:
    """Calls prctl(2) in the same way as `syscall`, with zeros for the unused arguments."""
    padded = (*arguments, 0, 0, 0, 0)[:4]
    return _checked(_libc.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, padded)), "prctl")


def _register(
    argument: int | ctypes.Array[ctypes.c_char] | None,
) -> ctypes.c_ulong | ctypes.Array[ctypes.c_char] | None:
    # A plain int would be passed as 32 bits, and the upper half of the register would be undefined.
    return ctypes.c_ulong(argument) if isinstance(argument, int) else argument


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
