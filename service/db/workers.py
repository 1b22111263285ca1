"""The table of live processes. It is for display only: leases alone decide who may build."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa

from service.core.clock import Clock
from service.core.worker import Worker, WorkerKind
from service.db.database import Database, repeated
from service.db.rows import Row
from service.db.tables import workers

_FORGET_S = 24 * 3600.0  # rows of processes that were killed

# `list` is a method below.
Workers = list[Worker]


class WorkerStore:
    """Signs of life, by worker."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock

    @repeated
    def beat(self, worker: Worker) -> None:
        """`worker` is alive; its `seen_at` is set to the time of this call."""
        with self._database.write() as connection:
            now = self._database.now(connection, self._clock)
            seen = replace(worker, seen_at=now)
            connection.execute(
                sa.delete(workers).where(
                    sa.or_(workers.c.id == worker.id, workers.c.seen_at < now - timedelta(seconds=_FORGET_S))
                )
            )
            connection.execute(
                sa.insert(workers).values(
                    id=seen.id,
                    kind=seen.kind,
                    host=seen.host,
                    pid=seen.pid,
                    target=seen.target,
                    build=seen.build,
                    started_at=seen.started_at,
                    seen_at=seen.seen_at,
                )
            )

    @repeated
    def remove(self, id: str) -> None:
        """The worker has ended."""
        with self._database.write() as connection:
            connection.execute(sa.delete(workers).where(workers.c.id == id))

    @repeated
    def list(self, within_s: float) -> Workers:
        """The workers that gave a sign of life in the last `within_s`, by kind and start."""
        query = sa.select(workers).order_by(workers.c.kind, workers.c.started_at)
        with self._database.read() as connection:
            since = self._database.now(connection, self._clock) - timedelta(seconds=within_s)
            return [_worker_from(row) for row in connection.execute(query.where(workers.c.seen_at >= since))]


def _worker_from(row: Row) -> Worker:
    return Worker(
        row.id, WorkerKind(row.kind), row.host, row.pid, row.target, row.started_at, row.seen_at, build=row.build
    )
