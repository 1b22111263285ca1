"""Limits the memory that glibc's allocator holds in a process with many short-lived threads.

glibc gives threads separate heaps (arenas), up to eight per core, and keeps freed memory in each of them. A new thread
takes over any free heap, so over time each heap grows to the peak of the most demanding thread. A Python process needs
only one heap: the interpreter's lock lets one thread allocate at a time, and Python has its own allocator for small
objects.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_ARENA_MAX = -8  # M_ARENA_MAX of malloc.h


def use_one_heap() -> None:
    """Makes all threads that are started from now on share one heap. Does nothing if the C library is not glibc."""
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def trim() -> None:
    """Returns free pages of the heap to the kernel, even between pages in use. Takes about a millisecond.

    Does nothing if the C library is not glibc.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
