"""The C library's heap, in a process whose threads come and go.

glibc gives threads heaps of their own, up to eight for each core, and keeps what was freed in each of them. A thread of
a pool takes over whichever is free: each grows to the peak of whatever was ever done in it. What runs Python needs one:
the interpreter's lock lets one thread allocate at a time, and its own allocator serves what is small.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def use_one_heap() -> None:
    """For all threads that are started from now on. Does nothing where the C library is none of glibc."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def trim() -> None:
    """Gives pages back that were freed between others that are in use. Likewise; takes about a millisecond."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
