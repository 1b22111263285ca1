"""Permits AMX tiles in the test's process, because some tests run kernels without Octet's runtime."""

from __future__ import annotations

import ctypes
import os

_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def permit_tiles() -> None:
    """Requests permission for tiles from Linux. The runtime requests it when it loads an artifact that needs tiles."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
