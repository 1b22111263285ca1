"""The table of the counts of the values that requests caused. Each row is for one day, and is deleted after 30 days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

import sqlalchemy as sa

from service.core.clock import Clock
from service.core.models.ranges import Counts, LiveCounts, StoredRange, merge_counts
from service.db.database import Database, insert_new, repeated, repeated_if_undone
from service.db.rows import Row
from service.db.tables import live_counts, model_versions

KEPT_DAYS = 30


class LiveCountStore:
    """The table of live counts."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database, self._clock = database, clock

    @repeated_if_undone
    def add(
        self,
        model: str,
        version: int,
        artifact: str,
        ranges: Sequence[StoredRange],
        counts: Sequence[Counts],
        samples: int,
        dropped: int,
    ) -> None:
        """Adds counts to those of today. Does nothing if the version has been deleted."""
        with self._database.write() as connection:
            exists = sa.select(model_versions.c.number).where(
                model_versions.c.name == model, model_versions.c.number == version
            )
            if connection.execute(exists).first() is None:
                return
            today = self._database.now(connection, self._clock).date()
            key = {"model": model, "version": version, "artifact": artifact, "day": today}
            same = [live_counts.c[name] == value for name, value in key.items()]
            values = {"samples": samples, "dropped": dropped, "counts": [list(each) for each in counts]}
            new = {**key, **values, "ranges": [each.to_json() for each in ranges]}
            insertion = insert_new(connection, live_counts).values(**new).returning(live_counts.c.day)
            if connection.execute(insertion).first() is not None:
                old = live_counts.c.day < today - timedelta(days=KEPT_DAYS)
                connection.execute(sa.delete(live_counts).where(old))
                return
            row = connection.execute(sa.select(live_counts).where(*same).with_for_update()).one()
            merged = [list(merge_counts(*each)) for each in zip(row.counts, counts, strict=True)]
            totals = {"samples": row.samples + samples, "dropped": row.dropped + dropped, "counts": merged}
            connection.execute(sa.update(live_counts).where(*same).values(**totals))

    @repeated
    def recent(self, days: int, model: str | None = None, version: int | None = None) -> list[LiveCounts]:
        """Returns the counts of the last `days` days, including today, sorted by model and version.

        If several artifacts counted for a version, returns those of the artifact that counted last.

        Args:
            model, version: limit the result to a model, and to one of its versions.
        """
        query = sa.select(live_counts).order_by(live_counts.c.model, live_counts.c.version, live_counts.c.day)
        if model is not None:
            query = query.where(live_counts.c.model == model)
        if version is not None:
            query = query.where(live_counts.c.version == version)
        with self._database.read() as connection:
            since = self._database.now(connection, self._clock).date() - timedelta(days=days - 1)
            rows = connection.execute(query.where(live_counts.c.day >= since)).all()
        found: dict[tuple[str, int], LiveCounts] = {}
        for row in rows:
            each = _counts_from(row)
            before = found.get((each.model, each.version))
            is_same = before is not None and before.artifact == each.artifact
            found[each.model, each.version] = before.merge(each) if before is not None and is_same else each
        return list(found.values())


def _counts_from(row: Row) -> LiveCounts:
    ranges = tuple(StoredRange.from_json(each) for each in row.ranges)
    counts = tuple(tuple(each) for each in row.counts)
    day: date = row.day
    return LiveCounts(row.model, row.version, row.artifact, ranges, counts, row.samples, row.dropped, day, day)
