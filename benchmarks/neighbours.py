"""A process that computes without end beside what is measured."""

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
    """A process that computes without end, on the last core or wherever the kernel likes."""
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
