"""This machine and its processes: cores, processor time, memory, and the load of other programs.

Imports nothing but the standard library, because the peers' environments and other machines run it too.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MIB = 1024
_PR_SET_PDEATHSIG = 1  # The value in linux/prctl.h.
_LIBC = ctypes.CDLL(None)  # Loaded now, because nothing should be loaded after a fork.


@dataclass(frozen=True)
class Memory:
    """Memory in MiB over all processes of a server: resident sets (RSS), and with shared pages divided among the
    processes that share them (PSS).
    """

    rss_mib: float
    pss_mib: float


def timestamp() -> str:
    """Returns the current time for a report."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"


def cpu_name() -> str:
    """Returns the name of the CPU. On x86 the family and the model are included, because machines in a cloud often hide
    the rest: `AMD EPYC (family 26, model 2)`.
    """
    facts: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    name = facts.get("model name", "unknown CPU")
    return f"{name} (family {facts['cpu family']}, model {facts['model']})" if "cpu family" in facts else name


def cores_for(threads: int) -> list[int]:
    """Returns the cores to which `threads` threads are pinned. Raises SystemExit if there are not enough."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise SystemExit(f"{threads} threads were requested, but this process may use only {len(allowed)} cores")
    return allowed[:threads]


def free_port() -> int:
    """Returns a port on which no process listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def busy_s() -> float:
    """Returns the CPU time that this machine has spent on anything since it started."""
    user, nice, system, _idle, _waiting, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + sum(rest)) / _TICKS_PER_S


def tree(pid: int) -> list[int]:
    """Returns `pid` and its descendants, without processes that have ended meanwhile."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def used_s(pids: Iterable[int]) -> float:
    """Returns the CPU time over all threads, including that of children that ended."""
    ticks = 0
    for pid in pids:
        with suppress(OSError):  # after the name: utime, stime, cutime and cstime, fields 14 to 17 of proc(5)
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / _TICKS_PER_S


def memory(pid: int) -> Memory:
    """Returns the memory of a process and its descendants."""
    return memory_of(tree(pid))


def memory_of(pids: Iterable[int]) -> Memory:
    rss = pss = 0
    for one in pids:
        with suppress(OSError):
            fields = dict(line.split(":", 1) for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()[1:])
            rss += int(fields["Rss"].split()[0])
            pss += int(fields["Pss"].split()[0])
    return Memory(round(rss / _MIB, 1), round(pss / _MIB, 1))


def send_signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process and its descendants."""
    for one in tree(pid):
        with suppress(ProcessLookupError):
            os.kill(one, number)


def terminate(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Ends a process by SIGTERM, or by SIGKILL if it does not end in time."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_with_parent() -> None:
    """Makes the kernel kill this process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class OtherLoad:
    """Measures how many CPUs other programs have kept busy since this object was created, according to `/proc/stat`.
    Other programs are all except this process, the given processes, and their descendants. Stolen time is included.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = self._now()

    def cpus(self) -> float:
        elapsed, busy, used = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return round(max(0.0, (busy - used) / elapsed), 3)

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), busy_s(), used_s({os.getpid(), *(one for pid in self._pids for one in tree(pid))})
