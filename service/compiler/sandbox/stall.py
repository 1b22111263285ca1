"""Detects a process that does nothing.

A process that computes uses processor time. A process that waits for a processor always has a thread in the state R
(runnable). A process that does neither is stopped, or waits for something that may never happen.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_LEAST_S = 0.02  # a process that used less processor time than this has done nothing but poll a clock
# If more time than this passes between two calls of `has_lasted`, this process itself was stopped, and perhaps all
# others.
_OWN_STOP_S = 5.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STATE, _USER_TIME, _SYSTEM_TIME = 0, 11, 12  # fields of /proc/PID/stat after the name, proc(5)


class Stall:
    """The stall detector of one process.

    Args:
        limit_s: the longest time during which the process may do nothing; None for no limit.
    """

    def __init__(self, pid: int, limit_s: float | None) -> None:
        self._pid, self._limit_s = pid, limit_s
        self._cpu_s: float | None = None  # the processor time when it last increased
        self._since_s = self._looked_s = 0.0

    def has_lasted(self, now_s: float) -> bool:
        """Returns true if the process has done nothing for `limit_s`. It must be called several times a second."""
        if self._limit_s is None:
            return False
        was_stopped = now_s - self._looked_s > _OWN_STOP_S
        self._looked_s = now_s
        cpu_s = _cpu_s(self._pid)
        has_grown = self._cpu_s is None or cpu_s - self._cpu_s >= _LEAST_S
        if was_stopped or has_grown or _is_runnable(self._pid):
            self._cpu_s, self._since_s = cpu_s, now_s
            return False
        return now_s - self._since_s > self._limit_s


def _cpu_s(pid: int) -> float:
    """Returns the processor time of all threads of a process, including those that have ended."""
    with contextlib.suppress(OSError):  # the process may end during this
        fields = _fields(Path(f"/proc/{pid}/stat"))
        return (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / _TICKS_PER_S
    return 0.0


def _is_runnable(pid: int) -> bool:
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                if _fields(thread / "stat")[_STATE] == "R":
                    return True
    return False


def _fields(stat: Path) -> list[str]:
    return stat.read_text().rpartition(")")[2].split()
