"""Ends a child when its parent ends, for any reason and whatever the child is doing.

Three mechanisms are used. All of them are in the kernel and do not run code of the child, so a held interpreter lock,
ignored signals and endless native code do not stop them. Each mechanism covers gaps of the other two.

- PR_SET_PDEATHSIG: the kernel sends the child a signal when the thread that started the child ends. A sandboxed child
  cannot undo it. But it has two gaps. The signal is sent with the parent's permissions, so none is sent if the parent
  or the child has changed its user. No signal is sent either if the parent continues to run, but lost track of the
  child because of an exception while starting it.
- The parent-death pipe. Only the parent has a descriptor of its writing end. When that is closed for any reason, the
  kernel kills the reader (F_SETSIG, fcntl(2)) with the reader's own permissions.
- A timer. The timer kills the child some time after the parent should have killed it, in case the parent hangs. The
  seccomp filter denies all calls that could stop the timer.
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
    """Kills this process when the process `parent` ends or closes its end of the parent-death pipe.

    If that has already happened, this process ends at once.

    Args:
        parent: the process that started this one.
        pipe: the reading end of the parent-death pipe. The pipe must stay open, even after an exec.
    """
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    # This check is needed, because a parent that ended before these calls causes no signal.
    poll = select.poll()
    poll.register(pipe, 0)
    if poll.poll(0) or os.getppid() != parent:
        sys.exit("the parent process has ended")


def die_after(seconds: float) -> None:
    """Kills this process after `seconds` of wall-clock time. An exec cancels the timer; see `alarm_after`."""
    event = struct.pack("=Qii48x", 0, signal.SIGKILL, _SIGEV_SIGNAL)  # struct sigevent
    timer = ctypes.create_string_buffer(4)
    syscall("timer_create", time.CLOCK_MONOTONIC, ctypes.create_string_buffer(event, len(event)), timer)
    nanoseconds = round(seconds * 1e9)
    once = struct.pack("=4q", 0, 0, *divmod(nanoseconds, 1_000_000_000))  # struct itimerspec: no interval, one value
    identity = int.from_bytes(timer.raw, sys.byteorder)
    syscall("timer_settime", identity, 0, ctypes.create_string_buffer(once, len(once)), None)


def alarm_after(seconds: float) -> None:
    """Sends SIGALRM to this process after `seconds`, even if an exec has replaced its program.

    The program can ignore the signal, but cannot postpone it.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
