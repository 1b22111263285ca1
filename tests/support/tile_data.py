"""Permits AMX tiles in the test's process, for kernels that run without Octet's runtime."""

from __future__ import annotations

import ctypes
import os

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def permit_tiles() -> None:
    """Requests permission for tiles from Linux, like the runtime when it loads an artifact that needs them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
