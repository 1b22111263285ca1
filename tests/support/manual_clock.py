"""A clock that tests set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ManualClock:
    """A clock for tests. It changes only when a test sets or advances it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start, self._elapsed_s = start, 0.0

    def jump(self, seconds: float) -> None:
        """Moves the time of day by `seconds`, as a user or NTP does. The monotonic clock does not change."""
        self._start += timedelta(seconds=seconds)

    def advance(self, seconds: float) -> None:
        self._elapsed_s += seconds

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic_s(self) -> float:
        return self._elapsed_s
