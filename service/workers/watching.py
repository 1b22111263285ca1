"""Distinguishes a process that hangs from one that is slow because it gets no processor time.

A watchdog that only compares two wall-clock times kills healthy processes: a machine that was suspended, a busy machine
or a debugger looks like a hang. So time counts here only if the watched thread could have made progress in it:

- a pause of the watchdog itself counts as one pause at most (`SupervisedProcess` ensures this);
- if a thread is ready to run, the processor time that it got counts, not the time that it waited for a processor;
- if a thread waits for other threads of its process, the processor time of those threads counts;
- while a thread waits for a disk or is held by a debugger, no time counts.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.core.cluster.running import Call, RunningCalls
from service.core.digest import Digest

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STATE, _UTIME, _STIME = 0, 11, 12  # fields of /proc/PID/stat after the name
_NOT_AT_FAULT = "DtXxZ"  # the states in which no time counts: waits for a disk, held by a debugger, ended


@dataclass(frozen=True)
class Thread:
    """The state of a thread at one moment.

    Attributes:
        state: the letter from /proc: R (ready to run), S (waits), D (waits for a disk), T (stopped), t (traced), …
        cpu_s: the processor time that the thread has used so far.
    """

    state: str
    cpu_s: float


def threads_of(pid: int) -> dict[int, Thread]:
    """Returns the threads of a process by thread id. Returns nothing if the process has ended or cannot be read."""
    found = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (thread := thread_of(pid, int(task.name))) is not None:
                found[int(task.name)] = thread
    return found


def thread_of(pid: int, thread: int) -> Thread | None:
    """Returns the current state of a thread, or None if the process does not have that thread."""
    try:
        text = Path(f"/proc/{pid}/task/{thread}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return Thread(fields[_STATE], (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S)


def progress_s(
    elapsed_s: float, thread: int, before: dict[int, Thread], after: dict[int, Thread], *, counts_stops: bool
) -> float:
    """Returns for how many of the last `elapsed_s` seconds a thread could have made progress.

    Args:
        before, after: the threads of the same process at the start and at the end of these seconds.
        counts_stops: true to count time during which the process was stopped (SIGSTOP).
    """
    now = after.get(thread)
    if now is None:
        return elapsed_s
    if now.state in _NOT_AT_FAULT:
        return 0.0
    if now.state == "T":
        return elapsed_s if counts_stops else 0.0
    cpu_s = {number: each.cpu_s - before[number].cpu_s for number, each in after.items() if number in before}
    if now.state == "R":
        return min(elapsed_s, cpu_s.get(thread, 0.0))
    if any(each.state == "R" for each in after.values()):  # the thread may be waiting for one of these threads
        return min(elapsed_s, sum(cpu_s.values()))
    return elapsed_s


class StallClock:
    """Adds up the time in which a thread could have made progress.

    Attributes:
        total_s: the sum so far. Until it reaches `trust_s`, all elapsed time is added without reading the states of the
            process's threads, because reading them takes long.
    """

    def __init__(self, trust_s: float, *, counts_stops: bool) -> None:
        self.total_s = 0.0
        self._trust_s, self._counts_stops = trust_s, counts_stops
        self._before: dict[int, Thread] | None = None

    def add(self, elapsed_s: float, pid: int, thread: int) -> None:
        """Records that another `elapsed_s` seconds have passed."""
        if self.total_s < self._trust_s:
            self.total_s += elapsed_s
            return
        after = threads_of(pid)
        if self._before is not None:
            self.total_s += progress_s(elapsed_s, thread, self._before, after, counts_stops=self._counts_stops)
        self._before = after


class CallWatch:
    """Finds model calls that do not end, in the table of a data plane's running calls.

    Attributes:
        hung: the artifacts whose calls were found to hang.
    """

    def __init__(self, running: RunningCalls) -> None:
        self._running = running
        self._clocks: dict[tuple[int, int], StallClock] = {}
        self.hung: list[Digest] = []

    def look(self, pid: int, elapsed_s: float) -> str:
        """Returns why the process that runs the calls must be ended, or an empty string if no call hangs.

        Args:
            elapsed_s: the time since the previous call of this method.
        """
        clocks, hung = {}, list[Call]()
        for call in self._running.calls():
            key = call.slot, call.number
            clock = self._clocks.get(key)
            if clock is None:
                clock = StallClock(call.limit_s / 2, counts_stops=False)
            else:
                clock.add(elapsed_s, pid, call.thread)
            clocks[key] = clock
            if clock.total_s > call.limit_s:
                hung.append(call)
        self._clocks = clocks
        self.hung = list(dict.fromkeys(call.artifact for call in hung if call.artifact is not None))
        if not hung:
            return ""
        names = " and ".join(sorted({call.model or "an unknown model" for call in hung}))
        return f"a call of {names} did not end in {max(clocks[call.slot, call.number].total_s for call in hung):.1f} s"

    def clear(self) -> None:
        """Forgets all observed calls. Must be called when the process is dead."""
        self._clocks.clear()
        self.hung.clear()
