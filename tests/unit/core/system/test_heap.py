"""Tests that all threads share one heap of the C library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_COUNT = """
import ctypes, sys, threading
from service.core.system.heap import trim, use_one_heap

libc = ctypes.CDLL(None)
libc.malloc.restype = libc.open_memstream.restype = ctypes.c_void_p
if sys.argv[1] == "one":
    use_one_heap()
together = threading.Barrier(8)

def allocate():
    together.wait()
    assert libc.malloc(5000)  # ctypes lets go of the interpreter meanwhile
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
trim()
text, size = ctypes.c_char_p(), ctypes.c_size_t()
stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
libc.malloc_info(0, stream)
libc.fclose(stream)
print(text.value.count(b"<heap nr="))
"""


@pytest.mark.skipif(not os.confstr("CS_GNU_LIBC_VERSION"), reason="of glibc")
@pytest.mark.parametrize(("how", "is_one"), [("one", True), ("as it is", False)])
def test_threads_share_one_heap(how: str, is_one: bool) -> None:
    """If each thread had its own heap, each thread that the control plane starts would leave freed memory in this heap
    when it ends."""
    done = subprocess.run([sys.executable, "-c", _COUNT, how], check=True, capture_output=True, text=True)
    assert (int(done.stdout) == 1) == is_one
