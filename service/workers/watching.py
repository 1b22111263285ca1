"""Tells a process that hangs from one that is slow because it does not get the processor.

A watchdog that compares two times of the clock kills the innocent: a machine that was suspended, a busy neighbour or a
debugger look to it as a hang does. So time counts here only as far as the watched thread could have made progress:

- the watchdog's own pauses count as one pause at most (`SupervisedProcess` sees to that);
- of a thread that is ready to run, the processor time that it got counts, and not the time that it waited for one;
- of a thread that waits for other threads of its process, the same of these;
- a thread that waits for a disk, or is held by a debugger, is not at fault.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.core.digest import Digest
from service.core.running import Call, Running

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_STATE, _UTIME, _STIME = 0, 11, 12  # fields of /proc/PID/stat after the name
_NOT_AT_FAULT = "DtXxZ"  # waits for a disk; held by a debugger; ended


@dataclass(frozen=True)
class Thread:
    """A thread at one moment.

    Attributes:
        state: as /proc has it: R (ready to run), S (waits), D (waits for a disk), T (stopped), t (traced), …
        cpu_s: the processor time that it has had.
    """

    state: str
    cpu_s: float


def threads_of(pid: int) -> dict[int, Thread]:
    """The threads of a process by their numbers; none if it has ended, or cannot be read."""
    found = {}
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (thread := thread_of(pid, int(task.name))) is not None:
                found[int(task.name)] = thread
    return found


def thread_of(pid: int, thread: int) -> Thread | None:
    """None if the process does not have that thread."""
    try:
        text = Path(f"/proc/{pid}/task/{thread}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return Thread(fields[_STATE], (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S)


def progress_s(
    elapsed_s: float, thread: int, before: dict[int, Thread], after: dict[int, Thread], *, counts_stops: bool
) -> float:
    """How much of the last `elapsed_s` seconds a thread could have made progress in.

    Args:
        before, after: the threads of its process at the begin and at the end of that time.
        counts_stops: whether time in which the process was stopped (SIGSTOP) counts.
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
    if any(each.state == "R" for each in after.values()):  # it may wait for one of these
        return min(elapsed_s, sum(cpu_s.values()))
    return elapsed_s


class StallClock:
    """The time that a thread has had to make progress.

    Attributes:
        total_s: so far. It is the time of the clock up to `trust_s`, since to read the threads of a process costs more.
    """

    def __init__(self, trust_s: float, *, counts_stops: bool) -> None:
        self.total_s = 0.0
        self._trust_s, self._counts_stops = trust_s, counts_stops
        self._before: dict[int, Thread] | None = None

    def add(self, elapsed_s: float, pid: int, thread: int) -> None:
        """Another `elapsed_s` seconds have passed."""
        if self.total_s < self._trust_s:
            self.total_s += elapsed_s
            return
        after = threads_of(pid)
        if self._before is not None:
            self.total_s += progress_s(elapsed_s, thread, self._before, after, counts_stops=self._counts_stops)
        self._before = after


class CallWatch:
    """Looks for calls of models that do not end, in the table of what a data plane runs.

    Attributes:
        hung: the artifacts whose calls were found to hang.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._clocks: dict[tuple[int, int], StallClock] = {}
        self.hung: list[Digest] = []

    def look(self, pid: int, elapsed_s: float) -> str:
        """Why the process has to end, which runs the calls; empty if none of them hangs.

        Args:
            elapsed_s: since the last look.
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
        """Forgets what was seen; to be called when the process is dead."""
        self._clocks.clear()
        self.hung.clear()
