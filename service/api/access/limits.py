"""Rate limits and daily quotas of API keys."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from service.cache.durable import locked, replace_file
from service.core.clock import Clock
from service.core.errors import OctetError, QuotaExceeded, RateLimited
from service.core.key import Key, Limits

_logger = logging.getLogger(__name__)


@dataclass
class Usage:
    """The use of one key on one day.

    Attributes:
        own: by this process; only the event loop changes it.
        others: by others, and by earlier processes, as far as was written down; only who saves changes it, and `saved`.
        saved: how much of `own` was written down.
    """

    day: date
    own: int = 0
    others: int = 0
    saved: int = 0

    @property
    def total(self) -> int:
        return self.own + self.others


class Meter:
    """Counts the requests of one key."""

    def __init__(self, limits: Limits, clock: Clock, known: Callable[[date], int] = lambda day: 0) -> None:
        """`known`: how many requests of a day were written down."""
        self._limits, self._clock, self._known = limits, clock, known
        self._size = max(1.0, limits.requests_per_s or 0)
        self._tokens, self._at_s = self._size, clock.monotonic_s()
        self.usage = self._begin(clock.now().date())

    def charge(self) -> None:
        """Counts a request; one that is refused counts nothing.

        Raises:
            QuotaExceeded, RateLimited: it is one too many.
        """
        if self._limits.requests_per_day is not None:
            self._check_day(self._limits.requests_per_day)
        if self._limits.requests_per_s is not None:
            self._take_token(self._limits.requests_per_s)
        self.usage.own += 1

    @property
    def has_quota(self) -> bool:
        return self._limits.requests_per_day is not None

    @property
    def today(self) -> Usage:
        """The use on the day that it is now."""
        now = self._clock.now()
        if self.usage.day != now.date():
            self.usage = self._begin(now.date())  # a new object: saving the old one does not change it
        return self.usage

    def _check_day(self, most: int) -> None:
        now = self._clock.now()
        if self.today.total >= most:
            raise QuotaExceeded(
                f"the key's {most} requests of this day are used up",
                hint="the next day begins at midnight, UTC",
                retry_after_s=(_midnight_after(now) - now).total_seconds(),
            )

    def _begin(self, day: date) -> Usage:
        return Usage(day, others=self._known(day))

    def _take_token(self, per_s: float) -> None:
        """A token bucket: it fills at `per_s`, and holds those of one second."""
        now_s = self._clock.monotonic_s()
        self._tokens = min(self._size, self._tokens + (now_s - self._at_s) * per_s)
        self._at_s = now_s
        if self._tokens < 1:
            raise RateLimited(f"the key is for {per_s:g} requests/s", retry_after_s=(1 - self._tokens) / per_s)
        self._tokens -= 1


class Meters:
    """One for each key that has a limit.

    What was used of a day is in a file, which outlives the process and is shared with others on the same folder: each
    adds what it let through, and learns what the others did, whenever it saves. To be used on one event loop, but for
    `save`, which one thread calls at a time.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._meters: dict[str, Meter | None] = {}
        self._known = _read(path)

    def charge(self, key: Key) -> None:
        """Counts a request of `key`. Raises as `Meter.charge`."""
        if (meter := self._of(key)) is not None:
            meter.charge()

    def add(self, key: Key, count: int) -> None:
        """Counts requests that were let through elsewhere."""
        if (meter := self._of(key)) is not None:
            meter.today.own += count

    def usage(self, key: Key) -> tuple[date, int]:
        """The day, and how many of its requests are known to have been let through on it."""
        meter = self._of(key)
        today = self._clock.now().date()
        return today, meter.today.total if meter is not None else 0

    def save(self) -> None:
        """Adds what was used since to what is written down, and learns the rest. Where it cannot, the log says so."""
        meters = [(id, meter) for id, meter in list(self._meters.items()) if meter is not None and meter.has_quota]
        if not meters:
            return
        today = self._clock.now().date()
        usages = {id: usage for id, meter in meters if (usage := meter.usage).day == today}
        try:
            with locked(self._path.parent):
                self._exchange(usages, today)
        except (OSError, OctetError) as error:
            _logger.error("%s, what was used of the keys' quotas, cannot be written: %s", self._path, error)

    def _exchange(self, usages: Mapping[str, Usage], today: date) -> None:
        """Under the lock of the folder: what is in `saved` is in the file, once."""
        written = _read(self._path)
        owns = {id: usage.own for id, usage in usages.items()}  # which goes on growing
        totals = {id: _count(written, id, today) + owns[id] - usage.saved for id, usage in usages.items()}
        found = written | {id: (today.isoformat(), total) for id, total in totals.items()}
        if found != written:
            replace_file(self._path, json.dumps(found).encode())
        self._known = found
        for id, usage in usages.items():
            usage.saved, usage.others = owns[id], totals[id] - owns[id]

    def _of(self, key: Key) -> Meter | None:
        try:
            return self._meters[key.id]
        except KeyError:
            meter = self._meters[key.id] = self._meter(key)
            return meter

    def _meter(self, key: Key) -> Meter | None:
        if key.limits == Limits():
            return None
        return Meter(key.limits, self._clock, lambda day: _count(self._known, key.id, day))


def _count(written: Mapping[str, tuple[str, int]], id: str, day: date) -> int:
    """The number of requests that the usage file records for a key's day."""
    found_day, count = written.get(id, ("", 0))
    return count if found_day == day.isoformat() else 0


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
