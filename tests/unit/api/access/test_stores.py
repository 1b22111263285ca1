"""Tests that keys, their usage, and the audit log behave the same in files and in tables of every database engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from service.api.access import Access, Stores, stores_of
from service.api.access.audit import AuditLog
from service.api.access.keys import FollowedKeys
from service.core.access.key import Key, Limits, Scope
from service.core.access.usage import SHARING_S, Use
from service.core.errors import DatabaseUnreachable, NotFound, QuotaExceeded, RateLimited, Unauthorized
from service.core.settings import Settings
from service.db import AuditTable, Database, KeyTable, UsageTable
from tests.support.databases import postgres_schema, postgres_server
from tests.support.manual_clock import ManualClock

__all__ = ["postgres_schema", "postgres_server"]

TODAY = date(2026, 1, 1)  # the start date of `ManualClock`


@dataclass
class Cluster:
    """Replicas that share stores, each with its own connections."""

    settings: Settings
    clock: ManualClock
    make: Callable[[], Stores]

    def replica(self) -> Access:
        return Access(self.settings, self.clock, self.make())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["files", "sqlite", "postgresql"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[Cluster]:
    settings = Settings(data_dir=tmp_path, auth="on")
    if request.param == "files":
        yield Cluster(settings, clock, lambda: stores_of(settings, clock=clock))
        return
    is_sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'octet.sqlite3'}" if is_sqlite else request.getfixturevalue("postgres_schema")
    opened: list[Database] = []

    def make() -> Stores:
        database = Database(url)
        database.migrate()
        opened.append(database)
        return Stores(FollowedKeys(KeyTable(database)), UsageTable(database, clock), AuditTable(database))

    yield Cluster(settings, clock, make)
    for database in opened:
        database.close()


def use(access: Access, text: str, times: int) -> int:
    """Sends `times` requests. Returns how many were admitted."""
    admitted = 0
    for _ in range(times):
        try:
            access.admit(f"Bearer {text}".encode(), Scope.PREDICT)
            admitted += 1
        except (QuotaExceeded, RateLimited):
            pass
    return admitted


def meet(*replicas: Access) -> None:
    """Exchanges usage between all replicas, as happens within two seconds."""
    for access in (*replicas, *replicas):
        access.save()


def test_a_key_survives_a_round_trip(cluster: Cluster) -> None:
    ring = cluster.make().ring(cluster.clock)
    first, _ = ring.create("one", [Scope.PREDICT, Scope.READ], Limits(2.5, 10**10))
    cluster.clock.advance(1)
    second, _ = ring.create("two", [Scope.ADMIN])
    assert list(cluster.make().keys.read().values()) == [first, second]


def test_other_replicas_see_a_change(cluster: Cluster) -> None:
    one, other = cluster.replica(), cluster.replica()
    key, text = one.keys.create("a", [Scope.PREDICT])
    cluster.clock.advance(1)
    other.refresh()
    assert use(other, text, 1) == 1
    other.keys.revoke(key.id)
    cluster.clock.advance(1)
    one.refresh()
    with pytest.raises(Unauthorized):
        use(one, text, 1)


def test_a_key_is_revoked_once(cluster: Cluster) -> None:
    ring = cluster.make().ring(cluster.clock)
    key, _ = ring.create("a", [Scope.PREDICT])
    first = ring.revoke(key.id)
    cluster.clock.advance(5)
    assert ring.revoke(key.id).revoked_at == first.revoked_at
    with pytest.raises(NotFound, match="'nobody'"):
        ring.revoke("nobody")


def test_replicas_share_the_quota_of_a_day(cluster: Cluster) -> None:
    one, other = cluster.replica(), cluster.replica()
    _, text = one.keys.create("a", [Scope.PREDICT], Limits(requests_per_day=6))
    other.refresh()
    cluster.clock.advance(1)
    assert use(one, text, 2) + use(other, text, 1) == 3
    meet(one, other)
    assert use(one, text, 2) == 2
    meet(one, other, one)
    assert use(other, text, 5) == 1
    meet(one, other)
    assert use(one, text, 1) == 0
    assert use(cluster.replica(), text, 1) == 0  # a replica that starts later refuses the request too
    cluster.clock.advance(24 * 3600)
    assert use(one, text, 7) == 6


def test_a_rate_is_divided_by_the_replicas_that_use_the_key(cluster: Cluster) -> None:
    replicas = [cluster.replica() for _ in range(3)]
    _, text = replicas[0].keys.create("a", [Scope.PREDICT], Limits(requests_per_s=60))
    for access in replicas:
        access.refresh()
    cluster.clock.advance(1)
    assert use(replicas[0], text, 100) == 60  # while this replica is alone, it grants the whole rate
    meet(*replicas)
    assert [use(access, text, 1) for access in replicas[1:]] == [1, 1]
    meet(*replicas)
    for _ in range(5):
        cluster.clock.advance(1)
        assert [use(access, text, 100) for access in replicas] == [20, 20, 20]
        meet(*replicas)
    cluster.clock.advance(SHARING_S)
    assert use(replicas[1], text, 1) == 1
    meet(*replicas)
    cluster.clock.advance(1)
    assert use(replicas[1], text, 100) == 60


def test_a_count_reported_twice_counts_once(cluster: Cluster) -> None:
    usage = cluster.make().usage
    for _ in range(2):
        usage.exchange(TODAY, "one", {"a": 3, "b": 1}, ())
    found = usage.exchange(TODAY, "two", {"a": 4}, ("b", "c"))
    assert found == {"a": Use(7, 2), "b": Use(1, 1)}
    assert usage.totals(TODAY) == {"a": 7, "b": 1}
    assert usage.totals(date(2026, 1, 2)) == {}


def test_entries_of_all_replicas_are_in_one_log_in_order(cluster: Cluster) -> None:
    logs = [AuditLog(cluster.make().audit, cluster.clock, name) for name in ("api-0", "api-1")]
    for number in range(4):
        logs[number % 2].note("push", model="ä\n", version=number)
    found = logs[0].last(3)
    assert [(entry["version"], entry["replica"]) for entry in found] == [(3, "api-1"), (2, "api-0"), (1, "api-1")]
    assert found[0]["model"] == "ä\n"
    assert found[0]["at"] == "2026-01-01T00:00:00+00:00"


def test_an_entry_added_twice_is_stored_once_in_a_table(cluster: Cluster) -> None:
    audit = cluster.make().audit
    if not isinstance(audit, AuditTable):
        pytest.skip("a line of a file is either written or not")
    for _ in range(2):
        audit.add("1", "", {"action": "push"})
    assert audit.last(5) == [{"action": "push"}]


class Away:
    """A store of keys that can become unreachable."""

    def __init__(self, keys: dict[str, Key]) -> None:
        self.keys, self.is_away = keys, False

    def read(self) -> dict[str, Key]:
        if self.is_away:
            raise DatabaseUnreachable("it is unreachable")
        return self.keys


def test_known_keys_work_without_the_database(cluster: Cluster) -> None:
    key, _ = cluster.make().ring(cluster.clock).create("a", [Scope.PREDICT])
    store = Away({key.id: key})
    followed = FollowedKeys(store)  # type: ignore[arg-type]  # FollowedKeys only reads the store
    store.is_away = True
    followed.refresh()
    assert followed.read() == {key.id: key}
