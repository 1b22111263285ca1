"""Rate limits and daily quotas of API keys.

Each replica counts the requests that it admits. Every second it reports its counts to the other replicas and receives
their counts. A daily quota is reduced by the requests of the other replicas. A rate is divided by the number of
replicas that use the key.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from types import MappingProxyType

from service.api.access.usage import UsageStore
from service.core.access.key import Key, Limits
from service.core.access.quota import Quota
from service.core.access.tenant import SEPARATOR
from service.core.access.usage import SHARING_S, KeyUsage
from service.core.clock import Clock
from service.core.errors import OctetError, QuotaExceeded, RateLimited
from service.core.system.outage import log_trouble

_logger = logging.getLogger(__name__)


@dataclass
class Usage:
    """The usage of one key on one day.

    Attributes:
        local: the requests in this process. Only the event loop changes this number.
        remote: the reported requests of other processes and of processes that have ended. Only the thread that saves
            changes this number and `reported`.
        reported: how many of the `local` requests have been reported to the other processes.
    """

    day: date
    local: int = 0
    remote: int = 0
    reported: int = 0

    @property
    def total(self) -> int:
        return self.local + self.remote


class Meter:
    """Counts the requests of one key.

    Attributes:
        sharers: the number of replicas that use the key, including this one.
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
            known: returns how many requests of a day have been reported so far.
            what: describes the events counted per day, for error messages; `{}` is replaced by the quota.
        """
        self._what = what
        self._limits, self._clock, self._known = limits, clock, known
        self.sharers = 1
        self._tokens, self._at_s = max(1.0, limits.requests_per_s or 0), clock.monotonic_s()
        self.reported_s = float("-inf")  # the last time at which counts were reported
        self.usage = self._begin(clock.now().date())

    def charge(self) -> None:
        """Counts a request, unless it is refused.

        Raises:
            QuotaExceeded, RateLimited: the request exceeds a limit.
        """
        self.check_day()
        if self._limits.requests_per_s is not None:
            self._take_token(self._limits.requests_per_s)
        self.usage.local += 1

    @property
    def has_quota(self) -> bool:
        return self._limits.requests_per_day is not None

    @property
    def today(self) -> Usage:
        """The usage of the current day."""
        now = self._clock.now()
        if self.usage.day != now.date():
            self.usage = self._begin(now.date())  # a new object, so that a concurrent save does not change it
        return self.usage

    def check_day(self, count: int = 1) -> None:
        """Raises `QuotaExceeded` if `count` more requests would exceed the daily quota."""
        now, most = self._clock.now(), self._limits.requests_per_day
        if most is not None and self.today.total + count > most:
            raise QuotaExceeded(
                f"{self._what.format(most)} of this day are used up"
                + (f": {count} more were requested, but only {most - self.today.total} are left" if count > 1 else ""),
                hint="the next day begins at midnight, UTC",
                retry_after_s=(_midnight_after(now) - now).total_seconds(),
            )

    def _begin(self, day: date) -> Usage:
        return Usage(day, remote=self._known(day))

    def _take_token(self, per_s: float) -> None:
        """Takes a token from a bucket. The bucket fills at this replica's part of `per_s`, and can hold the tokens of
        one second.
        """
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
    """The meters of all keys that have a limit.

    The usage of a day is kept when the process ends, and is shared: with each `save`, a replica reports the number of
    requests that it admitted, and receives the numbers of the other replicas. Must be used on one event loop. Only
    `save` may be called from other threads, and only from one of them at a time.
    """

    def __init__(self, store: UsageStore, clock: Clock, quotas: Mapping[str, Quota] = MappingProxyType({})) -> None:
        """`quotas` contains the quota of each tenant."""
        self._store, self._clock = store, clock
        # a random id, not the host name: an earlier process of this host may have counted requests today
        self._replica = uuid.uuid4().hex
        self._meters: dict[str, Meter | None] = {}  # the meters by the id of a key or of a tenant's counter
        today = clock.now().date()
        self._known = today, store.totals(today)  # the reported counts of the day, for meters that are created later
        self._tenants = self._common(quotas, "requests_per_day", "", "the tenant {0}'s {{}} requests")
        self._builds = self._common(quotas, "builds_per_day", "builds", "the tenant {0}'s {{}} builds")

    def charge(self, key: Key) -> None:
        """Counts a request of `key`, and of its tenant. Raises the errors of `Meter.charge`."""
        tenant = self._tenants.get(key.tenant)
        if tenant is not None:
            tenant.check_day()
        if (meter := self._of(key)) is not None:
            meter.charge()
        if tenant is not None:
            tenant.today.local += 1

    def check_builds(self, tenant: str, count: int = 1) -> None:
        """Raises `QuotaExceeded` if the tenant may not start `count` more builds today."""
        if (meter := self._builds.get(tenant)) is not None:
            meter.check_day(count)

    def count_builds(self, tenant: str, count: int = 1) -> None:
        """Counts builds that a tenant started."""
        if (meter := self._builds.get(tenant)) is not None:
            meter.today.local += count

    def add(self, key: Key, count: int) -> None:
        """Counts requests that another part of this replica admitted."""
        if (meter := self._of(key)) is not None:
            meter.today.local += count

    def usage_of(self, key: Key) -> KeyUsage:
        """Returns `key` with its usage, as far as this replica knows it."""
        meter = self._of(key)
        if meter is None:
            return KeyUsage(key, self._clock.now().date())
        return KeyUsage(key, meter.today.day, meter.today.total, meter.sharers)

    def save(self) -> None:
        """Reports the usage since the last call, and receives the other replicas' usage. A failure is only logged."""
        now_s, today = self._clock.monotonic_s(), self._clock.now().date()
        meters = {id: meter for id, meter in list(self._meters.items()) if meter is not None}
        usages = {id: usage for id, meter in meters.items() if (usage := meter.usage).day == today}
        news = {
            id: local for id, usage in usages.items() if (local := usage.local) > usage.reported
        }  # the event loop may increase these counts during the save
        for id in news:
            meters[id].reported_s = now_s
        sharing = {id for id, meter in meters.items() if meter.has_quota or now_s - meter.reported_s <= SHARING_S}
        if not sharing:
            return
        try:
            found = self._store.exchange(today, self._replica, news, sharing)
        except (OSError, OctetError) as error:
            log_trouble(_logger, error, "cannot report the use of API keys' quotas; it is reported later")
            return
        for id, use in found.items():
            meters[id].sharers = max(1, use.replicas)
            if id in usages:
                entry = usages[id]
                entry.reported = max(entry.reported, news.get(id, 0))
                entry.remote = use.total - entry.reported
        day, before = self._known
        self._known = today, {**(before if day == today else {}), **{id: use.total for id, use in found.items()}}

    def _of(self, key: Key) -> Meter | None:
        try:
            return self._meters[key.id]
        except KeyError:
            meter = self._meters[key.id] = self._meter(key)
            return meter

    def _meter(self, key: Key) -> Meter | None:
        return None if key.limits == Limits() else Meter(key.limits, self._clock, self._count_reported(key.id))

    def _common(self, quotas: Mapping[str, Quota], quota: str, suffix: str, what: str) -> dict[str, Meter]:
        """Returns a meter for each tenant that has the quota `quota`. The id of such a meter differs from the id of
        every key.
        """
        found = {}
        for tenant, own_limits in quotas.items():
            if (most := getattr(own_limits, quota)) is not None:
                id = tenant + SEPARATOR + suffix
                limits = Limits(requests_per_day=most)
                found[tenant] = self._meters[id] = Meter(
                    limits, self._clock, self._count_reported(id), what.format(tenant)
                )
        return found

    def _count_reported(self, id: str) -> Callable[[date], int]:
        def count_on(day: date) -> int:
            reported_day, totals = self._known
            return totals.get(id, 0) if day == reported_day else 0

        return count_on


def _midnight_after(moment: datetime) -> datetime:
    return datetime.combine(moment.date() + timedelta(days=1), time(), UTC)
