"""The table of verifications as a queue, and as what says which artifacts may be served."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from service.core.build import LeaseLost
from service.core.clock import Clock
from service.core.digest import Digest
from service.core.verification import Verification, VerificationState
from service.db.bell import Bell, ring
from service.db.database import Database, insert_new, repeated, repeated_if_undone
from service.db.rows import Row
from service.db.tables import builds, is_live, verifications

_QUEUED, _RUNNING, _FAILED = VerificationState.QUEUED, VerificationState.RUNNING, VerificationState.FAILED

_counts = verifications.c.pool == ""
# Whether the artifact of a build waits for the verification that counts, or failed it.
is_unverified = sa.exists().where(
    verifications.c.artifact == builds.c.artifact, _counts, verifications.c.state != VerificationState.PASSED
)


@dataclass(frozen=True)
class VerificationClaim:
    """A worker's hold on a running verification: a lease with a fencing token, as `claims.Claim`."""

    verification: Verification
    owner: str
    token: int

    @property
    def artifact(self) -> Digest:
        return self.verification.artifact


class VerificationStore:
    """The table of verifications, for those that serve artifacts and those that verify them.

    Args:
        clock: for tests; by default the database's.
        max_attempts: how many workers may die of a verification before it has failed.
    """

    def __init__(self, database: Database, clock: Clock | None = None, max_attempts: int = 3) -> None:
        self._database, self._clock, self.max_attempts = database, clock, max_attempts

    @property
    def bell(self) -> Bell:
        """Rung when a verification waits."""
        return self._database.bell

    @repeated
    def submit(self, artifact: Digest, target: str, pool: str = "") -> Verification:
        """What is known of an artifact's verification; where nothing is, one is queued."""
        with self._database.write() as connection:
            enqueue(connection, artifact, target, self._now(connection), pool, again=False)
            return _from(connection.execute(_of([artifact]).where(verifications.c.pool == pool)).one())

    @repeated
    def again(self, artifact: Digest) -> None:
        """Queues those of an artifact that failed."""
        with self._database.write() as connection:
            _queue_again(connection, artifact, self._now(connection))

    @repeated
    def find(self, artifacts: Collection[Digest]) -> Mapping[Digest, Verification]:
        """The verification that counts of those of the artifacts that have one."""
        with self._database.read() as connection:
            return {Digest(row.artifact): _from(row) for row in connection.execute(_of(artifacts).where(_counts))}

    @repeated
    def of_pools(self, artifact: Digest) -> Mapping[str, Verification]:
        """Those of an artifact, by pool; that of none counts for all."""
        with self._database.read() as connection:
            return {row.pool: _from(row) for row in connection.execute(_of([artifact]))}

    @repeated
    def any_to_claim(self, pool: str, targets: Collection[str]) -> bool:
        """Whether `claim` would find something to do; takes no lock."""
        with self._database.read() as connection:
            query = sa.select(verifications.c.artifact).where(_is_free(self._now(connection), pool, targets)).limit(1)
            return connection.execute(query).first() is not None

    @repeated_if_undone
    def claim(self, owner: str, pool: str, lease_s: float, targets: Collection[str]) -> VerificationClaim | None:
        """The oldest that is queued, or whose worker fell silent; it is `owner`'s now.

        One that too many workers died of has failed instead.

        Args:
            pool: of the worker.
            targets: only artifacts for these.
        """
        with self._database.write() as connection:
            now = self._now(connection)
            oldest = (
                sa.select(verifications)
                .where(_is_free(now, pool, targets))
                .order_by(verifications.c.pool != "", verifications.c.created_at, verifications.c.artifact)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            while (row := connection.execute(oldest).one_or_none()) is not None:
                if row.attempt < self.max_attempts:
                    return _take(connection, row, owner, now + timedelta(seconds=lease_s))
                summary = f"the worker of this verification died {row.attempt} times"
                _change(connection, row, state=_FAILED, finished_at=now, lease_until=None, result={"summary": summary})
        return None

    @repeated
    def heartbeat(self, claim: VerificationClaim, lease_s: float) -> None:
        """Keeps it for another `lease_s`. Raises `LeaseLost`."""
        with self._database.write() as connection:
            lease_until = self._now(connection) + timedelta(seconds=lease_s)
            _change(connection, _held(connection, claim), lease_until=lease_until)

    @repeated
    def release(self, claim: VerificationClaim, *, counts: bool) -> None:
        """Gives it back; the next worker may take it at once. Raises `LeaseLost`.

        Args:
            counts: whether this was an attempt.
        """
        with self._database.write() as connection:
            row = _held(connection, claim)
            attempt = row.attempt if counts else row.attempt - 1
            _change(connection, row, state=_QUEUED, worker=None, lease_until=None, attempt=attempt)
            ring(connection)

    @repeated
    def finish(self, claim: VerificationClaim, *, passed: bool, result: Mapping[str, Any]) -> None:
        """Ends it. Raises `LeaseLost`."""
        state = VerificationState.PASSED if passed else _FAILED
        with self._database.write() as connection:
            row = _row(connection, claim)
            if row is not None and row.state == state:  # the connection broke when it was committed
                return
            now = self._now(connection)
            row = _held(connection, claim)
            _change(connection, row, state=state, finished_at=now, lease_until=None, result=dict(result))
            ring(connection)

    @repeated
    def forget(self) -> int:
        """Deletes those of artifacts that no build answers with any more; how many they were."""
        answering = sa.exists().where(builds.c.artifact == verifications.c.artifact, is_live)
        with self._database.write() as connection:
            return connection.execute(sa.delete(verifications).where(sa.not_(answering))).rowcount

    def _now(self, connection: sa.Connection) -> datetime:
        return self._database.now(connection, self._clock)


def enqueue(
    connection: sa.Connection, artifact: Digest, target: str, now: datetime, pool: str = "", *, again: bool = True
) -> None:
    """Queues the verification of an artifact that has none.

    Args:
        again: also one that failed.
    """
    row = {"artifact": artifact, "pool": pool, "target": target, "state": _QUEUED, "created_at": now}
    new = insert_new(connection, verifications).values(**row, attempt=0, token=0, result={})
    if connection.execute(new.returning(verifications.c.artifact)).first() is not None:
        ring(connection)
    elif again:
        _queue_again(connection, artifact, now)


def unverified(connection: sa.Connection, artifacts: Collection[Digest]) -> dict[Digest, Verification]:
    """Those of the artifacts that wait for their verification, or failed it."""
    query = _of(artifacts).where(_counts, verifications.c.state != VerificationState.PASSED)
    return {Digest(row.artifact): _from(row) for row in connection.execute(query)}


def refusing(connection: sa.Connection, artifacts: Collection[Digest]) -> list[tuple[Digest, str]]:
    """Artifacts and the pools on which they failed."""
    query = _of(artifacts).where(sa.not_(_counts), verifications.c.state == _FAILED)
    return [(Digest(row.artifact), row.pool) for row in connection.execute(query)]


def _queue_again(connection: sa.Connection, artifact: Digest, now: datetime) -> None:
    failed = verifications.c.artifact == artifact, verifications.c.state == _FAILED
    values = {"state": _QUEUED, "attempt": 0, "result": {}, "created_at": now, "finished_at": None}
    if connection.execute(sa.update(verifications).where(*failed).values(**values)).rowcount:
        ring(connection)


def _of(artifacts: Collection[Digest]) -> sa.Select[Any]:
    return sa.select(verifications).where(verifications.c.artifact.in_(list(artifacts)))


def _is(artifact: str, pool: str) -> sa.ColumnElement[bool]:
    return sa.and_(verifications.c.artifact == artifact, verifications.c.pool == pool)


def _is_free(now: datetime, pool: str, targets: Collection[str]) -> sa.ColumnElement[bool]:
    fell_silent = sa.and_(verifications.c.state == _RUNNING, verifications.c.lease_until < now)
    is_free = sa.or_(verifications.c.state == _QUEUED, fell_silent)
    return sa.and_(is_free, verifications.c.target.in_(list(targets)), verifications.c.pool.in_(["", pool]))


def _take(connection: sa.Connection, row: Row, owner: str, lease_until: datetime) -> VerificationClaim:
    values = {"state": _RUNNING, "attempt": row.attempt + 1, "worker": owner, "token": row.token + 1}
    taken = _change(connection, row, **values, lease_until=lease_until)
    return VerificationClaim(_from(taken), owner, taken.token)


def _row(connection: sa.Connection, claim: VerificationClaim) -> Row | None:
    """The claim's row, locked; None where another has claimed it since, or it is gone."""
    ours = sa.select(verifications).where(_is(claim.artifact, claim.verification.pool))
    return connection.execute(ours.where(verifications.c.token == claim.token).with_for_update()).one_or_none()


def _held(connection: sa.Connection, claim: VerificationClaim) -> Row:
    """Raises `LeaseLost`."""
    row = _row(connection, claim)
    if row is None or row.state != _RUNNING:
        raise LeaseLost(f"{claim.owner} no longer holds the verification of {claim.artifact}")
    return row


def _change(connection: sa.Connection, row: Row, **values: Any) -> Row:
    own = sa.update(verifications).where(_is(row.artifact, row.pool))
    return connection.execute(own.values(**values).returning(verifications)).one()


def _from(row: Row) -> Verification:
    return Verification(
        Digest(row.artifact),
        row.target,
        VerificationState(row.state),
        row.created_at,
        row.pool,
        row.attempt,
        row.worker,
        row.result,
        row.finished_at,
    )
