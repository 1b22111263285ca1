"""How many threads this process has. Imported by `service.cli` before anything that starts one."""

from __future__ import annotations

from pathlib import Path


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


# An emulator of a processor (qemu-user) has threads of its own among those of its guest, whose forks it takes care of.
_EMULATORS = _threads() - 1


def own_threads() -> int:
    """Threads that a fork of this process would lack: all but the first, and but an emulator's, are some too many."""
    return _threads() - _EMULATORS
