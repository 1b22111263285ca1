"""The priority of background work."""

from __future__ import annotations

import contextlib
import os


def lower_priority(nice: int) -> None:
    """Gives this thread, and the threads and processes that it starts, at least the niceness `nice` (nice(2)).

    If `nice` is above 0, they also do not preempt other processes when they wake up (SCHED_BATCH).

    On most machines, outside of containers and services, Linux groups processes by session (autogroup, sched(7)), and
    compares niceness only within a session. So a process that should yield to the server must not start a session.
    """
    os.nice(max(0, nice - os.nice(0)))
    if nice:
        with contextlib.suppress(OSError):  # not every kernel supports this
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
