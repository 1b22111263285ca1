"""A server as the system sees it: all its processes, their resources, and how to stop them between turns."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.turns import busy_s

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MIB = 1024
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_LIBC = ctypes.CDLL(None)  # loaded before a fork, after which nothing should be loaded


@dataclass(frozen=True)
class Memory:
    """Memory in MiB over all processes of a server: resident sets (RSS), and with shared pages divided among the
    processes that share them (PSS).
    """

    rss_mib: float
    pss_mib: float


def tree(pid: int) -> list[int]:
    """Returns `pid` and its descendants, without processes that have ended meanwhile."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def used_s(pids: list[int]) -> float:
    """Returns the CPU time, including that of children that ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / _TICKS_PER_S


def memory(pid: int) -> Memory:
    """Returns the memory of a process and its descendants."""
    return memory_of(tree(pid))


def memory_of(pids: list[int]) -> Memory:
    rss = pss = 0
    for one in pids:
        with suppress(OSError):
            fields = dict(line.split(":", 1) for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()[1:])
            rss += int(fields["Rss"].split()[0])
            pss += int(fields["Pss"].split()[0])
    return Memory(round(rss / _MIB, 1), round(pss / _MIB, 1))


def tell(pid: int, number: signal.Signals) -> None:
    """Sends a signal to all processes of a server."""
    for one in tree(pid):
        with suppress(ProcessLookupError):
            os.kill(one, number)


def end_with_parent() -> None:
    """Makes the kernel kill this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class OtherLoad:
    """Measures the CPUs that neither this process nor the given ones kept busy since it was created, by `/proc/stat`;
    includes stolen time.
    """

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._before = (os.times().elapsed, busy_s(), self._used_s())

    def cpus(self) -> float:
        elapsed, busy, used = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return round(max(0.0, (busy - used) / elapsed), 3)

    def _now(self) -> tuple[float, float, float]:
        return os.times().elapsed, busy_s(), self._used_s()

    def _used_s(self) -> float:
        ours = {os.getpid()}
        for pid in self._pids:
            ours.update(tree(pid))
        return used_s(sorted(ours))
