"""The clock as a port, so that tests of leases and deadlines need not sleep."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Returns the time of day in UTC, with its time zone."""

    def monotonic_s(self) -> float: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock for tests, which changes only when a test sets or advances it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start, self._elapsed_s = start, 0.0

    def jump(self, seconds: float) -> None:
        """Moves the time of day by `seconds`, as a person or NTP does. The monotonic clock does not change."""
        self._start += timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic_s(self) -> float:
        return self._elapsed_s
