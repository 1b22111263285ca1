"""Runs a process that computes in an endless loop beside the measurement."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NEIGHBOURS = ("none", "bound to a core", "free")
_SPIN = "while True: pass"


@contextmanager
def busy(neighbour: str) -> Iterator[None]:
    """Runs a process that computes in an endless loop, on the last core or on any core that the kernel chooses."""
    if neighbour == "none":
        yield
        return
    with subprocess.Popen([sys.executable, "-c", _SPIN]) as process:
        try:
            if neighbour != "free":
                os.sched_setaffinity(process.pid, {max(os.sched_getaffinity(0))})
            yield
        finally:
            process.kill()
