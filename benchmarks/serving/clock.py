"""A timer that wakes epoll on time: its own timeout is in whole milliseconds."""

from __future__ import annotations

import ctypes
import os

_CLOCK_MONOTONIC = 1  # that of time.monotonic; linux/time.h
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME
_EXPIRATIONS_BYTES = 8
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """Linux's timerfd, on the clock of `time.monotonic`."""

    def __init__(self) -> None:
        self.fd: int = _LIBC.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, at_s: float) -> None:
        """Readable from `at_s` on, at once where that is over."""
        nanoseconds = max(1, int(at_s * 1e9))
        value = _Timespec(nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
        _LIBC.timerfd_settime(self.fd, _ABSOLUTE, ctypes.byref(_Setting(_Timespec(0, 0), value)), None)

    def read(self) -> None:
        os.read(self.fd, _EXPIRATIONS_BYTES)

    def close(self) -> None:
        os.close(self.fd)
