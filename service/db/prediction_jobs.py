"""The table of prediction jobs. The process that runs a job regularly reports that it is alive. The result of a job, or
the reason of its failure, stays for a limited time.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from service.core.clock import Clock
from service.core.errors import NotFound, QueueFull, Restarting, TooLarge
from service.core.models.job import JobOwner, JobState, PredictionJob
from service.db.database import Database, repeated, repeated_if_undone
from service.db.engines.notifications import notify
from service.db.rows import Row
from service.db.tables import prediction_jobs as table

LEASE_S = 15.0  # a job whose process has not reported for this long is lost
_LOST = Restarting("the server restarted before the job had ended", hint="send the request again").to_json()
_RETRY_S = 10.0
_SHOWN = [column for column in table.c if column is not table.c.result]


class PredictionJobStore:
    """The table of prediction jobs.

    Args:
        kept_s: how long a job is kept after its end.
        most_jobs, most_bytes: limits for the jobs of one tenant: their number, and the bytes of their inputs (while
            they run) and results together.
    """

    def __init__(
        self, database: Database, kept_s: float, most_jobs: int, most_bytes: int, clock: Clock | None = None
    ) -> None:
        self._database, self._clock = database, clock
        self._kept_s, self._most_jobs, self._most_bytes = kept_s, most_jobs, most_bytes

    @repeated_if_undone
    def add(self, id: str, owner: JobOwner, model: str, samples: int, size_bytes: int) -> PredictionJob:
        """Adds a running job.

        Raises:
            QueueFull: the tenant's jobs reach one of the limits.
        """
        with self._database.write() as connection:
            now = self._database.now(connection, self._clock)
            self._clean_up(connection, now)
            jobs, used_bytes = self._used(connection, owner.tenant)
            hint = "fetch results and delete their jobs: DELETE /api/v1/jobs/ID"
            if jobs >= self._most_jobs:
                raise QueueFull(
                    f"there are {jobs} jobs, and the limit is {self._most_jobs}", hint=hint, retry_after_s=_RETRY_S
                )
            if used_bytes + size_bytes > self._most_bytes:
                raise QueueFull(
                    f"the job has {size_bytes} bytes, but only {max(0, self._most_bytes - used_bytes)} of "
                    f"{self._most_bytes} are free",
                    hint=hint,
                    retry_after_s=_RETRY_S,
                )
            values = {
                "id": id,
                "tenant": owner.tenant,
                "key": owner.key,
                "model": model,
                "state": JobState.RUNNING,
                "samples": samples,
                "completed": 0,
                "size_bytes": size_bytes,
                "created_at": now,
                "alive_at": now,
            }
            row = connection.execute(sa.insert(table).values(**values).returning(*_SHOWN)).one()
        return _job_from(row, now)

    @repeated
    def get(self, id: str, owner: JobOwner, *, with_result: bool = True) -> PredictionJob:
        """Returns a job. Raises `NotFound` if it does not exist any more, or belongs to another caller."""
        with self._database.read() as connection:
            now = self._database.now(connection, self._clock)
            columns = [*_SHOWN, table.c.result] if with_result else _SHOWN
            row = connection.execute(sa.select(*columns).where(*_of(id, owner))).first()
        if row is None or self._is_over(row, now):
            raise _not_found(id)
        return _job_from(row, now)

    @repeated
    def list(self, owner: JobOwner) -> list[PredictionJob]:
        """Returns the jobs of a caller without their results, the newest first."""
        with self._database.read() as connection:
            now = self._database.now(connection, self._clock)
            order = table.c.created_at.desc(), table.c.id
            rows = connection.execute(sa.select(*_SHOWN).where(*_of(None, owner)).order_by(*order)).all()
        return [_job_from(row, now) for row in rows if not self._is_over(row, now)]

    @repeated
    def report(self, completed: Mapping[str, int]) -> set[str]:
        """Reports that the process of these jobs is alive, and how many predictions of each have a result. Returns the
        jobs that are still to be run: the others have been deleted, or count as lost.
        """
        wanted = set[str]()
        with self._database.write() as connection:
            now = self._database.now(connection, self._clock)
            for id, count in completed.items():
                change = sa.update(table).where(*_running(id)).values(alive_at=now, completed=count)
                if connection.execute(change.returning(table.c.id)).first() is not None:
                    wanted.add(id)
        return wanted

    @repeated
    def succeed(self, id: str, tenant: str, result: str) -> None:
        """Stores the result of a job, as JSON text. Does nothing if the job has been deleted.

        If the result does not fit into the tenant's bytes, the job fails.
        """
        size_bytes = len(result.encode())
        with self._database.write() as connection:
            _, used_bytes = self._used(connection, tenant, but=id)
            free_bytes = self._most_bytes - used_bytes
            if size_bytes > free_bytes:
                error = TooLarge(
                    f"the result has {size_bytes} bytes, but only {max(0, free_bytes)} of {self._most_bytes} are free",
                    hint="send fewer samples at a time, and delete earlier jobs",
                )
                self._end(connection, id, JobState.FAILED, error=error.to_json())
            else:
                self._end(connection, id, JobState.SUCCEEDED, result=result, size_bytes=size_bytes, is_complete=True)

    @repeated
    def fail(self, id: str, error: dict[str, Any]) -> None:
        """Stores the reason why a job failed. Does nothing if the job has been deleted."""
        with self._database.write() as connection:
            self._end(connection, id, JobState.FAILED, error=error)

    @repeated
    def delete(self, id: str, owner: JobOwner) -> None:
        """Deletes a job. Raises `NotFound` as `get` does."""
        with self._database.write() as connection:
            if connection.execute(sa.delete(table).where(*_of(id, owner)).returning(table.c.id)).first() is None:
                raise _not_found(id)

    def _end(
        self,
        connection: sa.Connection,
        id: str,
        state: JobState,
        *,
        error: dict[str, Any] | None = None,
        result: str | None = None,
        size_bytes: int = 0,
        is_complete: bool = False,
    ) -> None:
        now = self._database.now(connection, self._clock)
        values: dict[str, Any] = {
            "state": state,
            "error": error,
            "result": result,
            "size_bytes": size_bytes,
            "ended_at": now,
        }
        if is_complete:
            values["completed"] = table.c.samples
        connection.execute(sa.update(table).where(*_running(id)).values(**values))
        notify(connection)  # for requests that wait for the end of a job

    @repeated
    def clean_up(self) -> None:
        """Deletes the jobs that have been kept long enough."""
        with self._database.write() as connection:
            self._clean_up(connection, self._database.now(connection, self._clock))

    def _is_over(self, row: Row, now: datetime) -> bool:
        return row.ended_at is not None and row.ended_at < now - timedelta(seconds=self._kept_s)

    def _clean_up(self, connection: sa.Connection, now: datetime) -> None:
        """Deletes the jobs that have been kept long enough, and marks lost jobs as failed."""
        connection.execute(sa.delete(table).where(table.c.ended_at < now - timedelta(seconds=self._kept_s)))
        is_lost = sa.and_(table.c.ended_at.is_(None), table.c.alive_at < now - timedelta(seconds=LEASE_S))
        ended = {"state": JobState.FAILED, "error": _LOST, "ended_at": now, "size_bytes": 0}
        connection.execute(sa.update(table).where(is_lost).values(**ended))

    @staticmethod
    def _used(connection: sa.Connection, tenant: str, but: str = "") -> tuple[int, int]:
        """Returns the number of jobs of a tenant except `but`, and their bytes."""
        columns = sa.func.count(), sa.func.coalesce(sa.func.sum(table.c.size_bytes), 0)
        row = connection.execute(sa.select(*columns).where(table.c.tenant == tenant, table.c.id != but)).one()
        return int(row[0]), int(row[1])


def _of(id: str | None, owner: JobOwner) -> list[sa.ColumnElement[bool]]:
    found = [table.c.tenant == owner.tenant, table.c.key == owner.key]
    return found if id is None else [table.c.id == id, *found]


def _running(id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return table.c.id == id, table.c.ended_at.is_(None)


def _not_found(id: str) -> NotFound:
    return NotFound(f"there is no job {id!r}", hint="jobs are deleted some time after their end; send the input again")


def _job_from(row: Row, now: datetime) -> PredictionJob:
    is_lost = row.ended_at is None and row.alive_at < now - timedelta(seconds=LEASE_S)
    return PredictionJob(
        id=row.id,
        model=row.model,
        state=JobState.FAILED if is_lost else JobState(row.state),
        samples=row.samples,
        completed=row.completed,
        created_at=row.created_at,
        ended_at=row.alive_at if is_lost else row.ended_at,
        error=_LOST if is_lost else row.error,
        result=getattr(row, "result", None),
    )
