"""The tables of API keys, of the use of their limits, and of the audit log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from service.core.access.key import Key, Limits, Scope
from service.core.access.usage import SHARING_S, Use
from service.core.clock import Clock
from service.core.errors import NotFound
from service.db.database import Database, insert_new, repeated, upsert
from service.db.engines.notifications import Notifications, notify
from service.db.rows import Row
from service.db.tables import api_keys, audit_log, key_usage

_DAYS_KEPT = 2  # days of usage that are kept, because the clocks of replicas may disagree about midnight


class KeyTable:
    """The table of API keys, see `service.api.access.keys.KeyStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def notifications(self) -> Notifications:
        """The notifications that are sent, among others, when a key is added or revoked."""
        return self._database.notifications

    @repeated
    def read(self) -> Mapping[str, Key]:
        with self._database.read() as connection:
            rows = connection.execute(sa.select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id))
            return {row.id: _key_from(row) for row in rows}

    @repeated
    def add(self, key: Key) -> None:
        with self._database.write() as connection:
            values = {
                "id": key.id,
                "name": key.name,
                "sha256": key.digest,
                "scopes": sorted(key.scopes),
                "requests_per_s": key.limits.requests_per_s,
                "requests_per_day": key.limits.requests_per_day,
                "tenant": key.tenant,
                "created_at": key.created_at,
                "revoked_at": key.revoked_at,
            }
            connection.execute(insert_new(connection, api_keys).values(values))
            notify(connection)

    @repeated
    def revoke(self, id: str, at: datetime) -> Key:
        with self._database.write() as connection:
            is_key = api_keys.c.id == id
            connection.execute(sa.update(api_keys).where(is_key, api_keys.c.revoked_at.is_(None)).values(revoked_at=at))
            row = connection.execute(sa.select(api_keys).where(is_key)).one_or_none()
            if row is None:
                raise NotFound(f"there is no key {id!r}", hint="octet keys list shows them")
            notify(connection)
            return _key_from(row)


class UsageTable:
    """The table of the use of keys, see `service.api.access.usage.UsageStore`.

    Each replica has its own rows. So replicas do not wait for each other, and a repeated report counts once.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database, self._clock = database, clock

    @repeated
    def totals(self, day: date) -> Mapping[str, int]:
        query = sa.select(key_usage.c.key, sa.func.sum(key_usage.c.used)).where(key_usage.c.day == day)
        with self._database.read() as connection:
            return {key: int(used) for key, used in connection.execute(query.group_by(key_usage.c.key))}

    @repeated
    def exchange(self, day: date, replica: str, used: Mapping[str, int], also: Collection[str]) -> Mapping[str, Use]:
        with self._database.write() as connection:
            now = self._database.now(connection, self._clock)
            if used:
                rows = [
                    {"day": day, "key": key, "replica": replica, "used": count, "seen_at": now}
                    for key, count in sorted(used.items())
                ]
                statement = upsert(connection, key_usage, ["used", "seen_at"])
                connection.execute(statement, rows)
                connection.execute(sa.delete(key_usage).where(key_usage.c.day < day - timedelta(days=_DAYS_KEPT)))
            is_sharing = sa.case((key_usage.c.seen_at > now - timedelta(seconds=SHARING_S), 1), else_=0)
            query = (
                sa.select(key_usage.c.key, sa.func.sum(key_usage.c.used), sa.func.sum(is_sharing))
                .where(key_usage.c.day == day, key_usage.c.key.in_({*used, *also}))
                .group_by(key_usage.c.key)
            )
            return {key: Use(int(total), int(replicas)) for key, total, replicas in connection.execute(query)}


class AuditTable:
    """The table of the audit log, see `service.api.access.audit.AuditStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @repeated
    def add(self, id: str, tenant: str, entry: Mapping[str, Any]) -> None:
        with self._database.write() as connection:
            values = {"id": id, "tenant": tenant, "entry": dict(entry)}
            connection.execute(insert_new(connection, audit_log).values(values))

    @repeated
    def last(self, count: int, tenant: str | None = None) -> list[dict[str, Any]]:
        query = sa.select(audit_log.c.entry).order_by(audit_log.c.sequence.desc()).limit(count)
        if tenant is not None:
            query = query.where(audit_log.c.tenant == tenant)
        with self._database.read() as connection:
            return [dict(row.entry) for row in connection.execute(query)]


def _key_from(row: Row) -> Key:
    return Key(
        row.id,
        row.name,
        row.sha256,
        frozenset(map(Scope, row.scopes)),
        Limits(row.requests_per_s, row.requests_per_day),
        row.created_at,
        row.revoked_at,
        tenant=row.tenant,
    )
