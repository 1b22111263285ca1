"""Counts the threads of this process. `service.cli` imports this module before any module that starts a thread.

If it is imported later, Python threads that run already are still counted as own threads, but native ones, such as a
library's pool, would be taken for threads of an emulator.
"""

from __future__ import annotations

import threading
from pathlib import Path


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


# The threads of a CPU emulator such as qemu-user. These threads appear among this process's threads, and the emulator
# itself restores them after a fork.
_EMULATORS = _threads() - threading.active_count()


def own_threads() -> int:
    """Returns the number of this process's threads, without those of an emulator.

    A fork has only the thread that forked, so a process with a result above 1 should not fork.
    """
    return _threads() - _EMULATORS
