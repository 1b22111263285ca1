"""The table of worker processes: their heartbeats and capabilities. The table does not decide which worker may build:
leases do.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from service.core.clock import Clock
from service.core.cluster.worker import Beat, Worker, WorkerKind, WorkerState
from service.db.database import Database, repeated
from service.db.engines.notifications import notify
from service.db.rows import Row
from service.db.tables import workers

_FORGET_S = 24 * 3600.0  # rows of killed processes are deleted after this time

# `list` is a method below.
Workers = list[Worker]
Beats = list[Beat]


class WorkerStore:
    """The table of workers."""

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock

    def beat(self, worker: Worker) -> None:
        """Records a heartbeat of `worker` at the time of this call.

        The rest of the worker's row is written only if the worker's state or its loaded models have changed; then a
        notification is sent. A failed call is not repeated, because the next heartbeat follows soon.
        """
        with self._database.write() as connection:
            now = self._database.now(connection, self._clock)
            own = sa.update(workers).where(workers.c.id == worker.id)
            is_same = workers.c.loaded_version == worker.loaded_version, workers.c.state == worker.state
            if connection.execute(own.where(*is_same).values(seen_at=now, build=worker.build)).rowcount:
                return
            values = _values_of(replace(worker, seen_at=now))
            if not connection.execute(own.values(**values)).rowcount:
                forgotten = workers.c.seen_at < now - timedelta(seconds=_FORGET_S)
                connection.execute(sa.delete(workers).where(forgotten))
                connection.execute(sa.insert(workers).values(**values))
            if worker.kind is WorkerKind.INFERENCE:
                notify(connection)

    def remove(self, id: str) -> None:
        """Deletes a worker that has ended. A failed call is not repeated, because a worker without heartbeats is
        ignored anyway.
        """
        with self._database.write() as connection:
            connection.execute(sa.delete(workers).where(workers.c.id == id))
            notify(connection)

    @repeated
    def list(self, within_s: float) -> Workers:
        """Returns the workers with a heartbeat in the last `within_s`, sorted by type and start."""
        query = sa.select(workers).order_by(workers.c.kind, workers.c.started_at)
        with self._database.read() as connection:
            since = self._database.now(connection, self._clock) - timedelta(seconds=within_s)
            return [_worker_from(row) for row in connection.execute(query.where(workers.c.seen_at >= since))]

    def beats(self, within_s: float) -> Beats:
        """Returns the heartbeats in the last `within_s` of the cluster's workers that answer predictions.

        A failed call is not repeated and raises at once, because the caller polls often and has to react.
        """
        query = sa.select(workers.c.id, workers.c.state, workers.c.loaded_version, workers.c.seen_at)
        query = query.where(workers.c.kind == WorkerKind.INFERENCE, workers.c.address.is_not(None))
        with self._database.read() as connection:
            now = self._database.now(connection, self._clock)
            rows = connection.execute(query.where(workers.c.seen_at >= now - timedelta(seconds=within_s))).all()
        return [
            Beat(row.id, WorkerState(row.state), row.loaded_version, (now - row.seen_at).total_seconds())
            for row in rows
        ]

    def find(self, ids: Collection[str]) -> Workers:
        """Returns the requested workers, except those that do not exist."""
        query = sa.select(workers).where(workers.c.id.in_(ids))
        with self._database.read() as connection:
            return [_worker_from(row) for row in connection.execute(query)]


def _values_of(worker: Worker) -> dict[str, Any]:
    loaded = [{"model": model, "versions": versions} for model, versions in worker.models.items()]
    return vars(worker) | {"features": list(worker.features), "loaded": loaded}


def _worker_from(row: Row) -> Worker:
    loaded = tuple((each["model"], version) for each in row.loaded or () for version in each["versions"])
    own = {"kind": WorkerKind(row.kind), "state": WorkerState(row.state), "loaded": loaded}
    return Worker(**{**row._mapping, **own, "features": tuple(row.features or ())})
