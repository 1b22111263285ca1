"""The table of verifications: a queue for workers, and the record of which artifacts may be served."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from service.core.builds.build import LeaseLost
from service.core.clock import Clock
from service.core.digest import Digest
from service.core.verification.jobs import Verification, VerificationState
from service.db.database import Database, insert_new, repeated, repeated_if_undone
from service.db.engines.notifications import Notifications, notify
from service.db.rows import Row
from service.db.tables import builds, is_live, verifications

_QUEUED, _RUNNING, _FAILED = VerificationState.QUEUED, VerificationState.RUNNING, VerificationState.FAILED

# True for the verification that decides whether the artifact is served.
_counts = verifications.c.pool == ""
# True for a build whose artifact waits for the verification that decides about serving, or failed it.
is_unverified = sa.exists().where(
    verifications.c.artifact == builds.c.artifact, _counts, verifications.c.state != VerificationState.PASSED
)


@dataclass(frozen=True)
class VerificationClaim:
    """A worker's claim on a running verification: a lease with a fencing token, like `claims.Claim`."""

    verification: Verification
    owner: str
    token: int

    @property
    def artifact(self) -> Digest:
        return self.verification.artifact


class VerificationStore:
    """The table of verifications, for the processes that serve artifacts and the workers that verify them.

    Args:
        clock: a clock for tests; by default the database's.
        max_attempts: a verification fails if this many workers die while they hold it.
    """

    def __init__(self, database: Database, clock: Clock | None = None, max_attempts: int = 3) -> None:
        self._database, self._clock, self.max_attempts = database, clock, max_attempts

    @property
    def notifications(self) -> Notifications:
        """The notifications that are sent when a verification is queued."""
        return self._database.notifications

    @repeated
    def submit(self, artifact: Digest, target: str, pool: str = "") -> Verification:
        """Returns an artifact's verification, after queuing a verification if there is none."""
        with self._database.write() as connection:
            enqueue(connection, artifact, target, self._now(connection), pool, again=False)
            return _from(connection.execute(_of([artifact]).where(verifications.c.pool == pool)).one())

    @repeated
    def again(self, artifact: Digest) -> None:
        """Queues the failed verifications of an artifact again."""
        with self._database.write() as connection:
            _queue_again(connection, artifact, self._now(connection))

    @repeated
    def find(self, artifacts: Collection[Digest]) -> Mapping[Digest, Verification]:
        """Returns the verifications that decide about serving, for those artifacts that have one."""
        with self._database.read() as connection:
            return {Digest(row.artifact): _from(row) for row in connection.execute(_of(artifacts).where(_counts))}

    @repeated
    def of_pools(self, artifact: Digest) -> Mapping[str, Verification]:
        """Returns the verifications of an artifact by pool. The verification with an empty pool decides about
        serving.
        """
        with self._database.read() as connection:
            return {row.pool: _from(row) for row in connection.execute(_of([artifact]))}

    @repeated
    def any_to_claim(self, pool: str, targets: Collection[str]) -> bool:
        """Returns true if `claim` would find a verification. Takes no lock."""
        with self._database.read() as connection:
            query = sa.select(verifications.c.artifact).where(_is_free(self._now(connection), pool, targets)).limit(1)
            return connection.execute(query).first() is not None

    @repeated_if_undone
    def claim(self, owner: str, pool: str, lease_s: float, targets: Collection[str]) -> VerificationClaim | None:
        """Claims the oldest verification that is queued or whose worker stopped its heartbeats; None if there is none.

        A verification that already made too many workers die fails instead.

        Args:
            owner: the worker that claims the verification.
            pool: the worker's pool.
            targets: the targets whose artifacts may be claimed.
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
        """Renews the lease for another `lease_s`. Raises `LeaseLost` if the worker no longer holds the verification."""
        with self._database.write() as connection:
            lease_until = self._now(connection) + timedelta(seconds=lease_s)
            _change(connection, _lock_claimed(connection, claim), lease_until=lease_until)

    @repeated
    def release(self, claim: VerificationClaim, *, counts: bool) -> None:
        """Returns the verification to the queue, where another worker may claim it at once.

        Args:
            counts: True to count this as an attempt.

        Raises:
            LeaseLost: the worker no longer holds the verification.
        """
        with self._database.write() as connection:
            row = _lock_claimed(connection, claim)
            attempt = row.attempt if counts else row.attempt - 1
            _change(connection, row, state=_QUEUED, worker=None, lease_until=None, attempt=attempt)
            notify(connection)

    @repeated
    def finish(self, claim: VerificationClaim, *, passed: bool, result: Mapping[str, Any]) -> None:
        """Records the result. Raises `LeaseLost` if the worker no longer holds the verification."""
        state = VerificationState.PASSED if passed else _FAILED
        with self._database.write() as connection:
            row = _find_claimed(connection, claim)
            if row is not None and row.state == state:  # an earlier try was committed, although its connection broke
                return
            now = self._now(connection)
            row = _lock_claimed(connection, claim)
            _change(connection, row, state=state, finished_at=now, lease_until=None, result=dict(result))
            notify(connection)

    @repeated
    def forget(self) -> int:
        """Deletes the verifications of artifacts that no valid build has as its result. Returns their number."""
        answering = sa.exists().where(builds.c.artifact == verifications.c.artifact, is_live)
        with self._database.write() as connection:
            return connection.execute(sa.delete(verifications).where(sa.not_(answering))).rowcount

    def _now(self, connection: sa.Connection) -> datetime:
        return self._database.now(connection, self._clock)


def enqueue(
    connection: sa.Connection, artifact: Digest, target: str, now: datetime, pool: str = "", *, again: bool = True
) -> None:
    """Queues the verification of an artifact if it has none.

    Args:
        again: True to queue a failed verification again.
    """
    row = {"artifact": artifact, "pool": pool, "target": target, "state": _QUEUED, "created_at": now}
    new = insert_new(connection, verifications).values(**row, attempt=0, token=0, result={})
    if connection.execute(new.returning(verifications.c.artifact)).first() is not None:
        notify(connection)
    elif again:
        _queue_again(connection, artifact, now)


def unverified(connection: sa.Connection, artifacts: Collection[Digest]) -> dict[Digest, Verification]:
    """Returns the verification that decides about serving, for those artifacts that wait for it or failed it."""
    query = _of(artifacts).where(_counts, verifications.c.state != VerificationState.PASSED)
    return {Digest(row.artifact): _from(row) for row in connection.execute(query)}


def refusing(connection: sa.Connection, artifacts: Collection[Digest]) -> list[tuple[Digest, str]]:
    """Returns pairs of an artifact and a pool on whose workers the artifact failed its verification."""
    query = _of(artifacts).where(sa.not_(_counts), verifications.c.state == _FAILED)
    return [(Digest(row.artifact), row.pool) for row in connection.execute(query)]


def _queue_again(connection: sa.Connection, artifact: Digest, now: datetime) -> None:
    failed = verifications.c.artifact == artifact, verifications.c.state == _FAILED
    values = {"state": _QUEUED, "attempt": 0, "result": {}, "created_at": now, "finished_at": None}
    if connection.execute(sa.update(verifications).where(*failed).values(**values)).rowcount:
        notify(connection)


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


def _find_claimed(connection: sa.Connection, claim: VerificationClaim) -> Row | None:
    """Returns the claim's row and locks it; None if another worker has claimed the verification since, or it was
    deleted.
    """
    ours = sa.select(verifications).where(_is(claim.artifact, claim.verification.pool))
    return connection.execute(ours.where(verifications.c.token == claim.token).with_for_update()).one_or_none()


def _lock_claimed(connection: sa.Connection, claim: VerificationClaim) -> Row:
    """Returns the claim's row and locks it. Raises `LeaseLost` if the claim is stale."""
    row = _find_claimed(connection, claim)
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
