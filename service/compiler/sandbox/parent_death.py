"""A child ends with its parent: whatever ends that, and whatever the child does meanwhile.

Three ways, all of them the kernel's: no line of the child runs for them, so neither the interpreter's lock, nor ignored
signals, nor native code without end holds them up. Each has a hole that the others close.

- PR_SET_PDEATHSIG, which nothing in the child can undo once it is sandboxed. But it is the dying parent that sends the
  signal: none comes where that may not signal the child, because one of them changed its user; none where a parent
  lives on and has lost the child, by an exception in the middle of starting it. And it is not the parent's end that
  counts but that of the thread that started the child.
- The parent-death pipe, of whose writing end the parent has the only descriptor. When the last one is closed, by whom
  and however, the kernel kills the reader (F_SETSIG, fcntl(2)), in the reader's own name.
- A timer that kills, set for a while after the parent should have done so: the parent may stand still itself. The
  filter refuses every call that would stop it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import struct
import sys
import time

from service.compiler.sandbox.kernel import prctl, syscall

_PR_SET_PDEATHSIG = 1
_SIGEV_SIGNAL = 0


def die_with(parent: int, pipe: int) -> None:
    """Kills this process when the process `parent` ends, or closes its end of the parent-death pipe; at once if it has.

    Args:
        parent: the process that started this one.
        pipe: the reading end of the parent-death pipe. To stay open, also in a program that this process becomes.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    # Checked afterwards: a parent that was already gone sends no signal.
    poll = select.poll()
    poll.register(pipe, 0)
    if poll.poll(0) or os.getppid() != parent:
        sys.exit("the parent process is gone")


def die_after(seconds: float) -> None:
    """Kills this process after this time on the clock. Ends with an exec: see `alarm_after`."""
    event = struct.pack("=Qii48x", 0, signal.SIGKILL, _SIGEV_SIGNAL)  # struct sigevent
    timer = ctypes.create_string_buffer(4)
    syscall("timer_create", time.CLOCK_MONOTONIC, ctypes.create_string_buffer(event, len(event)), timer)
    nanoseconds = round(seconds * 1e9)
    once = struct.pack("=4q", 0, 0, *divmod(nanoseconds, 1_000_000_000))  # struct itimerspec: no interval, one value
    identity = int.from_bytes(timer.raw, sys.byteorder)
    syscall("timer_settime", identity, 0, ctypes.create_string_buffer(once, len(once)), None)


def alarm_after(seconds: float) -> None:
    """As `die_after`, for a program that this process becomes: SIGALRM, which that could ignore, but not put off."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
