"""Rate limits and daily quotas of API keys.

A replica counts what it lets through by itself, tells the others every second, and learns what they did. Of a day's
quota it subtracts what they have used; a rate it divides by the number of replicas at which the key is used.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType

from service.api.access.usage import UsageStore
from service.core.clock import Clock
from service.core.errors import OctetError, QuotaExceeded, RateLimited
from service.core.key import Key, Limits
from service.core.outage import log_trouble
from service.core.settings import Quota
from service.core.tenant import SEPARATOR
from service.core.usage import SHARING_S, KnownKey

_logger = logging.getLogger(__name__)


@dataclass
class Usage:
    """The use of one key on one day.

    Attributes:
        own: by this process; only the event loop changes it.
        others: by others, and by earlier processes, as far as they told; only who saves changes it, and `told`.
        told: how much of `own` the others know.
    """

    day: date
    own: int = 0
    others: int = 0
    told: int = 0

    @property
    def total(self) -> int:
        return self.own + self.others


class Meter:
    """Counts the requests of one key.

    Attributes:
        sharers: the replicas at which the key is used, this one among them.
    """

    def __init__(
        self,
        limits: Limits,
        clock: Clock,
        known: Callable[[date], int] = lambda day: 0,
        what: str = "the key's {} requests",
    ) -> None:
        """
        Args:
            known: how many requests of a day were told of.
            what: is counted by the day, where `{}` is the quota.
        """
        self._what = what
        self._limits, self._clock, self._known = limits, clock, known
        self.sharers = 1
        self._tokens, self._at_s = max(1.0, limits.requests_per_s or 0), clock.monotonic_s()
        self.told_s = float("-inf")  # when there was something to tell
        self.usage = self._begin(clock.now().date())

    def charge(self) -> None:
        """Counts a request; one that is refused counts nothing.

        Raises:
            QuotaExceeded, RateLimited: it is one too many.
        """
        self.check_day()
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

    def check_day(self, count: int = 1) -> None:
        """Raises `QuotaExceeded`: there may not be `count` more."""
        now, most = self._clock.now(), self._limits.requests_per_day
        if most is not None and self.today.total + count > most:
            raise QuotaExceeded(
                f"{self._what.format(most)} of this day are used up"
                + (f": {count} more are asked for, and {most - self.today.total} are left" if count > 1 else ""),
                hint="the next day begins at midnight, UTC",
                retry_after_s=(_midnight_after(now) - now).total_seconds(),
            )

    def _begin(self, day: date) -> Usage:
        return Usage(day, others=self._known(day))

    def _take_token(self, per_s: float) -> None:
        """A token bucket: it fills at this replica's share of `per_s`, and holds what comes in one second."""
        now_s, share_per_s = self._clock.monotonic_s(), per_s / self.sharers
        size = max(1.0, share_per_s)
        self._tokens = min(size, self._tokens + (now_s - self._at_s) * share_per_s)
        self._at_s = now_s
        if self._tokens < 1:
            shared = f", which {self.sharers} servers share" if self.sharers > 1 else ""
            wait_s = (1 - self._tokens) / share_per_s
            raise RateLimited(f"the key is for {per_s:g} requests/s{shared}", retry_after_s=wait_s)
        self._tokens -= 1


class Meters:
    """One for each key that has a limit.

    What was used of a day outlives the process, and is shared with other replicas: each says what it let through, and
    learns what the others did, whenever it saves. To be used on one event loop, but for `save`, which one thread calls
    at a time.
    """

    def __init__(self, store: UsageStore, clock: Clock, quotas: Mapping[str, Quota] = MappingProxyType({})) -> None:
        """`quotas`: by tenant."""
        self._store, self._clock = store, clock
        self._replica = uuid.uuid4().hex  # another of the same name may have counted today
        self._meters: dict[str, Meter | None] = {}  # by the id of a key, or of a tenant's count
        today = clock.now().date()
        self._known = today, store.totals(today)  # for meters that have not begun with the day
        self._tenants = self._common(quotas, "requests_per_day", "", "the tenant {0}'s {{}} requests")
        self._builds = self._common(quotas, "builds_per_day", "builds", "the tenant {0}'s {{}} builds")

    def charge(self, key: Key) -> None:
        """Counts a request of `key`, and of its tenant. Raises as `Meter.charge`."""
        tenant = self._tenants.get(key.tenant)
        if tenant is not None:
            tenant.check_day()
        if (meter := self._of(key)) is not None:
            meter.charge()
        if tenant is not None:
            tenant.today.own += 1

    def check_builds(self, tenant: str, count: int = 1) -> None:
        """Raises `QuotaExceeded`: the tenant may not begin so many builds today."""
        if (meter := self._builds.get(tenant)) is not None:
            meter.check_day(count)

    def count_builds(self, tenant: str, count: int = 1) -> None:
        """Notes that builds of a tenant were begun."""
        if (meter := self._builds.get(tenant)) is not None:
            meter.today.own += count

    def add(self, key: Key, count: int) -> None:
        """Counts requests that were let through elsewhere in this replica."""
        if (meter := self._of(key)) is not None:
            meter.today.own += count

    def known(self, key: Key) -> KnownKey:
        """What is known of the use of `key`."""
        meter = self._of(key)
        if meter is None:
            return KnownKey(key, self._clock.now().date())
        return KnownKey(key, meter.today.day, meter.today.total, meter.sharers)

    def save(self) -> None:
        """Tells what was used since, and learns the rest. Where that fails, the log says so."""
        now_s, today = self._clock.monotonic_s(), self._clock.now().date()
        meters = {id: meter for id, meter in list(self._meters.items()) if meter is not None}
        usages = {id: usage for id, meter in meters.items() if (usage := meter.usage).day == today}
        news = {id: own for id, usage in usages.items() if (own := usage.own) > usage.told}  # which goes on growing
        for id in news:
            meters[id].told_s = now_s
        asked = {id for id, meter in meters.items() if meter.has_quota or now_s - meter.told_s <= SHARING_S}
        if not asked:
            return
        try:
            found = self._store.exchange(today, self._replica, news, asked)
        except (OSError, OctetError) as error:
            log_trouble(_logger, error, "what was used of the keys' quotas cannot be told, and is told later")
            return
        for id, use in found.items():
            meters[id].sharers = max(1, use.replicas)
            if id in usages:
                its = usages[id]
                its.told = max(its.told, news.get(id, 0))
                its.others = use.total - its.told
        day, before = self._known
        self._known = today, {**(before if day == today else {}), **{id: use.total for id, use in found.items()}}

    def _of(self, key: Key) -> Meter | None:
        try:
            return self._meters[key.id]
        except KeyError:
            meter = self._meters[key.id] = self._meter(key)
            return meter

    def _meter(self, key: Key) -> Meter | None:
        return None if key.limits == Limits() else Meter(key.limits, self._clock, self._told_of(key.id))

    def _common(self, quotas: Mapping[str, Quota], quota: str, suffix: str, what: str) -> dict[str, Meter]:
        """Of each tenant that has such a quota; its id is none that a key can have."""
        found = {}
        for tenant, its in quotas.items():
            if (most := getattr(its, quota)) is not None:
                id = tenant + SEPARATOR + suffix
                limits = Limits(requests_per_day=most)
                found[tenant] = self._meters[id] = Meter(limits, self._clock, self._told_of(id), what.format(tenant))
        return found

    def _told_of(self, id: str) -> Callable[[date], int]:
        def known(day: date) -> int:
            told, totals = self._known
            return totals.get(id, 0) if day == told else 0

        return known


def _midnight_after(moment: datetime) -> datetime:
    return datetime.combine(moment.date() + timedelta(days=1), time(), UTC)
