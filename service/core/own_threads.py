"""How many threads this process has. Imported by `service.cli` before anything that starts one.

Where it is imported later, threads of Python's that run already count as ours, and native ones (a library's pool) would
be taken for an emulator's.
"""

from __future__ import annotations

import threading
from pathlib import Path


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


# An emulator of a processor (qemu-user) has threads of its own among those of its guest, whose forks it takes care of.
_EMULATORS = _threads() - threading.active_count()


def own_threads() -> int:
    """Threads that a fork of this process would lack: all but the first, and but an emulator's, are some too many."""
    return _threads() - _EMULATORS
