"""How much may be done with a key: so many requests a second, and so many a day."""

from __future__ import annotations

import json
import logging
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from service.cache.durable import locked, replace_file
from service.core.clock import Clock
from service.core.errors import OctetError, QuotaExceeded, RateLimited
from service.core.key import Key, Limits

_logger = logging.getLogger(__name__)


class Meter:
    """Counts the requests of one key."""

    def __init__(self, limits: Limits, clock: Clock, day: date | None = None, used: int = 0) -> None:
        """`used` requests were taken on `day`."""
        self._limits, self._clock = limits, clock
        self._size = max(1.0, limits.requests_per_s or 0)
        self._tokens, self._at_s = self._size, clock.monotonic_s()
        self.day, self.used = day, used

    def charge(self) -> None:
        """Counts a request; one that is refused counts nothing.

        Raises:
            QuotaExceeded, RateLimited: it is one too many.
        """
        if self._limits.requests_per_day is not None:
            self._check_day(self._limits.requests_per_day)
        if self._limits.requests_per_s is not None:
            self._take_token(self._limits.requests_per_s)
        self.used += 1

    def _check_day(self, most: int) -> None:
        now = self._clock.now()
        if self.day != now.date():
            self.day, self.used = now.date(), 0
        if self.used >= most:
            raise QuotaExceeded(
                f"the key's {most} requests of this day are used up",
                hint="the next day begins at midnight, UTC",
                retry_after_s=(_midnight_after(now) - now).total_seconds(),
            )

    def _take_token(self, per_s: float) -> None:
        """A token bucket: it fills at `per_s`, and holds those of one second."""
        now_s = self._clock.monotonic_s()
        self._tokens = min(self._size, self._tokens + (now_s - self._at_s) * per_s)
        self._at_s = now_s
        if self._tokens < 1:
            raise RateLimited(f"the key is for {per_s:g} requests/s", retry_after_s=(1 - self._tokens) / per_s)
        self._tokens -= 1


class Meters:
    """One for each key that has a limit. What was used of a day outlives the process, in a file.

    To be used on one event loop, but for `save`.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._meters: dict[str, Meter | None] = {}
        self._saved = self._before = _read(path)

    def charge(self, key: Key) -> None:
        """Counts a request of `key`. Raises as `Meter.charge`."""
        try:
            meter = self._meters[key.id]
        except KeyError:
            meter = self._meters[key.id] = self._meter(key)
        if meter is not None:
            meter.charge()

    def save(self) -> None:
        """Writes down what was used of the day, if that has changed. Where it cannot, the log says so."""
        used = {id: (str(m.day), m.used) for id, m in list(self._meters.items()) if m is not None and m.day}
        used = {**self._before, **used}
        if used == self._saved:
            return
        try:
            with locked(self._path.parent):
                replace_file(self._path, json.dumps(used).encode())
            self._saved = used
        except (OSError, OctetError) as error:
            _logger.error("%s, what was used of the keys' quotas, cannot be written: %s", self._path, error)

    def _meter(self, key: Key) -> Meter | None:
        if key.limits == Limits():
            return None
        day, used = self._before.get(key.id, ("", 0))
        return Meter(key.limits, self._clock, date.fromisoformat(day) if day else None, used)


def _midnight_after(moment: datetime) -> datetime:
    return datetime.combine(moment.date() + timedelta(days=1), time(), UTC)


def _read(path: Path) -> dict[str, tuple[str, int]]:
    try:
        found = json.loads(path.read_bytes())
        return {str(id): (date.fromisoformat(day).isoformat(), int(used)) for id, (day, used) in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        _logger.error("%s, what was used of the keys' quotas, cannot be read: %s", path, error)
        return {}
