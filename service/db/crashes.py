"""The table of crash records, for all machines that share the database."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from service.core.cluster.crash import Record, Records, record_from_json
from service.core.digest import Digest
from service.db.database import Database, repeated
from service.db.tables import crash_records


class CrashTable:
    """The table of crash records, see `service.workers.crashes.CrashStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @repeated
    def read(self) -> Records:
        with self._database.read() as connection:
            return _read(connection)

    @repeated
    def change(self, change: Callable[[Records], Records]) -> Records:
        with self._database.write() as connection:
            if connection.dialect.name == "postgresql":  # SQLite locks the whole database
                connection.exec_driver_sql(f"LOCK TABLE {crash_records.name} IN SHARE ROW EXCLUSIVE MODE")
            before = _read(connection)
            after = change(before)
            old = [artifact for artifact in before if after.get(artifact) != before[artifact]]
            new = [artifact for artifact in after if after[artifact] != before.get(artifact)]
            if old:
                connection.execute(sa.delete(crash_records).where(crash_records.c.artifact.in_(map(str, old))))
            if new:
                rows = [{"artifact": str(artifact), "record": after[artifact].to_json()} for artifact in new]
                connection.execute(sa.insert(crash_records), rows)
            return after


def _read(connection: sa.Connection) -> dict[Digest, Record]:
    rows = connection.execute(sa.select(crash_records).order_by(crash_records.c.artifact))
    return {Digest(row.artifact): record_from_json(row.record) for row in rows}
