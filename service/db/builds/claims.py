"""The operations of a worker on a build that it has claimed.

A claim is a lease with a fencing token. When the lease has ended, another worker may claim the build. The token grows
with every claim, and only the worker with the current token may change the build: a worker that slept past the end of
its lease finds that its token is stale. So two workers may compute the same build for a moment, but only one of them
can finish it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from service.core.builds.build import Build, BuildCanceled, BuildInputs, BuildState, LeaseLost, Stage
from service.core.digest import Digest
from service.core.errors import BuildCrashed, OctetError
from service.db.rows import Row, append_event, build_from, change, inputs_from
from service.db.tables import build_stages, builds, is_unfinished, model_versions

_MAX_EVENTS = 10_000  # the compiler that writes the log reads hostile files, which must not fill the disk
_MAX_LINE = 4_000
_HELD = (
    sa.select(builds)
    .where(builds.c.id == sa.bindparam("held_id"), builds.c.token == sa.bindparam("held_token"))
    .where(builds.c.state == BuildState.RUNNING)
    .with_for_update()
)


@dataclass(frozen=True)
class Claim:
    """A worker's claim on a running build.

    Attributes:
        build: the build at the time of the claim.
        inputs: the inputs of the build.
        owner: the worker.
        token: the fencing token, see the module.
    """

    build: Build
    inputs: BuildInputs
    owner: str
    token: int


def leases(connection: sa.Connection) -> dict[int, datetime]:
    """Returns the end of the lease of each running build, by row number. The end of a lease changes with every
    heartbeat.
    """
    query = sa.select(builds.c.sequence, builds.c.lease_until).where(builds.c.state == BuildState.RUNNING)
    return {row.sequence: row.lease_until for row in connection.execute(query)}


@dataclass(frozen=True)
class Claimable:
    """The condition and the order of builds that may be claimed.

    Attributes:
        now: the time that the ends of leases are compared with.
        silent: row numbers of builds without a heartbeat for the time of a lease, even if the clock was set back.
        targets: the targets whose builds may be claimed; empty for all.
        passing: True for a worker that runs a build beside a long one. Such a worker claims no background builds, and
            claims the builds with the smallest model files first.
    """

    now: datetime
    silent: Collection[int]
    targets: Collection[str] = ()
    passing: bool = False

    @property
    def condition(self) -> sa.ColumnElement[bool]:
        is_over = sa.or_(builds.c.lease_until < self.now, builds.c.sequence.in_(self.silent))
        fell_silent = sa.and_(builds.c.state == BuildState.RUNNING, is_over)
        is_free = sa.or_(builds.c.state == BuildState.QUEUED, fell_silent)
        if self.targets:
            is_free = sa.and_(is_free, builds.c.target.in_(self.targets))
        return sa.and_(is_free, builds.c.background.is_(sa.false())) if self.passing else is_free

    @property
    def order(self) -> tuple[sa.ColumnElement[Any], ...]:
        """The order of claims: the oldest build first, and background builds last.

        If `passing`, the smallest build first.
        """
        if not self.passing:
            return builds.c.background, builds.c.sequence
        size = sa.select(sa.func.min(model_versions.c.size_bytes)).where(model_versions.c.source == builds.c.source)
        return size.scalar_subquery(), builds.c.sequence


def any_to_claim(connection: sa.Connection, claimable: Claimable) -> bool:
    """Returns true if `claim` would find a build. Takes no lock, so idle workers may call it often."""
    query = sa.select(builds.c.sequence).where(is_unfinished, claimable.condition).limit(1)
    return connection.execute(query).first() is not None


def claim(
    connection: sa.Connection, owner: str, claimable: Claimable, lease_s: float, max_attempts: int
) -> Claim | None:
    """Claims the first build in the order of `claimable`; returns None if no such build exists.

    Builds that were canceled, or that had too many attempts, are ended instead.
    """
    now = claimable.now
    first = (
        sa.select(builds)
        .where(is_unfinished, claimable.condition)
        .order_by(*claimable.order)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    while (row := connection.execute(first).one_or_none()) is not None:
        if row.state == BuildState.RUNNING and row.cancel_requested:
            end(connection, row, now, BuildState.CANCELED)
        elif row.attempt >= max_attempts:
            end(connection, row, now, BuildState.FAILED, error=_crashed(row).to_json())
        else:
            return _take(connection, row, owner, now, lease_s)
    return None


def lock_claimed(connection: sa.Connection, claim: Claim) -> Row:
    """Returns the claimed build's row, and locks it until the transaction ends.

    Raises:
        LeaseLost: the claim is stale.
    """
    row = connection.execute(_HELD, {"held_id": claim.build.id, "held_token": claim.token}).one_or_none()
    if row is None:
        raise LeaseLost(f"{claim.owner} no longer holds build {claim.build.id}")
    return row


def is_held(connection: sa.Connection, claim: Claim) -> bool:
    """Returns true if the claim was committed and is still valid."""
    row = _lock_row(connection, claim)
    return row is not None and (row.state, row.owner) == (BuildState.RUNNING, claim.owner)


def has_ended(connection: sa.Connection, claim: Claim, state: BuildState, artifact: Digest | None) -> bool:
    """Returns true if this claim ended the build with this state and artifact."""
    row = _lock_row(connection, claim)
    return row is not None and (row.state, row.artifact) == (state, artifact)


def _lock_row(connection: sa.Connection, claim: Claim) -> Row | None:
    """Returns the claim's row; None if the claim was not committed or is stale.

    If the connection broke during a commit, the row stays locked until the database has ended that transaction, so this
    function waits for the transaction's outcome.
    """
    query = sa.select(builds).where(builds.c.id == claim.build.id).with_for_update()
    row = connection.execute(query).one_or_none()
    return row if row is not None and row.token == claim.token else None


def heartbeat(connection: sa.Connection, claim: Claim, now: datetime, lease_s: float) -> None:
    row = lock_claimed(connection, claim)
    _check_not_canceled(row)
    change(connection, row.sequence, lease_until=now + timedelta(seconds=lease_s))


def progress(connection: sa.Connection, claim: Claim, now: datetime, stage: Stage, fraction: float) -> None:
    row = lock_claimed(connection, claim)
    _check_not_canceled(row)
    fraction = min(max(fraction, 0.0), 1.0)
    if row.stage != stage:
        _leave_stage(connection, row, now)
        also = {"stage": stage, "stage_started_at": now, "progress": fraction}
        append_event(connection, row.sequence, now, "stage", also, stage=stage, fraction=fraction)
    elif row.progress != fraction and row.last_event < _MAX_EVENTS:
        append_event(connection, row.sequence, now, "progress", {"progress": fraction}, stage=stage, fraction=fraction)
    elif row.progress != fraction:
        change(connection, row.sequence, progress=fraction)


def log(connection: sa.Connection, claim: Claim, now: datetime, line: str) -> None:
    row = lock_claimed(connection, claim)
    if row.last_event >= _MAX_EVENTS:
        return
    if row.last_event == _MAX_EVENTS - 1:
        line = "the rest of this log was dropped, because it is too long"
    append_event(connection, row.sequence, now, "log", line=line[:_MAX_LINE])


def finish(
    connection: sa.Connection,
    claim: Claim,
    now: datetime,
    artifact: Digest | None,
    error: OctetError | None,
    canceled: bool,
) -> None:
    row = lock_claimed(connection, claim)
    if artifact is not None and error is not None:
        end(connection, row, now, BuildState.DIFFERENT, artifact=artifact, error=error.to_json())
    elif artifact is not None:
        end(connection, row, now, BuildState.SUCCEEDED, artifact=artifact)
    elif error is not None:
        end(connection, row, now, BuildState.FAILED, error=error.to_json())
    elif canceled and row.cancel_requested:
        end(connection, row, now, BuildState.CANCELED)
    else:  # the build was requested again after its cancellation, when the worker had already stopped
        _put_back(connection, row, now)


def release(connection: sa.Connection, claim: Claim, now: datetime) -> None:
    row = lock_claimed(connection, claim)
    if row.cancel_requested:
        end(connection, row, now, BuildState.CANCELED)
    else:
        _put_back(connection, row, now)


def end(connection: sa.Connection, row: Row, now: datetime, state: BuildState, **result: Any) -> None:
    """Ends a build with a final state. `result` contains its artifact or its error."""
    if row.state == BuildState.RUNNING and state is not BuildState.CANCELED:
        _leave_stage(connection, row, now)
    also = {"state": state, "finished_at": now, "owner": None, "lease_until": None, **result}
    if state.has_artifact:
        also["progress"] = 1.0
    append_event(connection, row.sequence, now, "state", also, state=state, **result)


def _take(connection: sa.Connection, row: Row, owner: str, now: datetime, lease_s: float) -> Claim:
    if row.state == BuildState.RUNNING:
        line = f"worker {row.owner} sent no heartbeats; starting again"
        append_event(connection, row.sequence, now, "log", line=line)
    attempt = row.attempt + 1
    also = {
        "state": BuildState.RUNNING,
        "stage": None,
        "stage_started_at": None,
        "progress": 0.0,
        "attempt": attempt,
        "owner": owner,
        "token": row.token + 1,
        "lease_until": now + timedelta(seconds=lease_s),
        "started_at": now,
    }
    running = {"state": BuildState.RUNNING, "attempt": attempt, "owner": owner}
    taken = append_event(connection, row.sequence, now, "state", also, **running)
    return Claim(build_from(taken), inputs_from(taken), owner, taken.token)


def _put_back(connection: sa.Connection, row: Row, now: datetime) -> None:
    also = {
        "state": BuildState.QUEUED,
        "stage": None,
        "stage_started_at": None,
        "progress": 0.0,
        "attempt": row.attempt - 1,  # the attempt did not fail, so it does not count
        "owner": None,
        "lease_until": None,
        "started_at": None,
    }
    append_event(connection, row.sequence, now, "state", also, state=BuildState.QUEUED)


def _leave_stage(connection: sa.Connection, row: Row, now: datetime) -> None:
    if row.stage is None:
        return
    duration_s = max((now - row.stage_started_at).total_seconds(), 0.0)  # the clock may have been set back
    connection.execute(
        sa.insert(build_stages).values(build=row.sequence, target=row.target, stage=row.stage, duration_s=duration_s)
    )


def _check_not_canceled(row: Row) -> None:
    if row.cancel_requested:
        raise BuildCanceled(f"build {row.id} was canceled")


def _crashed(row: Row) -> BuildCrashed:
    where = f" in stage {row.stage}" if row.stage else ""
    return BuildCrashed(
        f"the worker of this build died {row.attempt} times, the last time{where}",
        stage=row.stage,
        hint="look in the worker's log, or in the kernel's, for the reason",
    )
