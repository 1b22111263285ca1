"""The model versions that requested a build, which keep it listed.

A build without requests is no longer found by any query. Its row stays, without details, because
the counts that metrics show are taken from the rows, and only grow.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from service.core.build import BuildState
from service.db import claims
from service.db.rows import Row, change
from service.db.tables import build_events, build_requests, builds

is_wanted = sa.exists().where(build_requests.c.build == builds.c.sequence)


def withdraw(connection: sa.Connection, model: str, versions: Collection[int], now: datetime) -> int:
    """Withdraws the requests of a model's versions. Returns the number of builds that have no request left."""
    theirs = build_requests.c.model == model, build_requests.c.version.in_(versions)
    wanted = sa.select(build_requests.c.build).where(*theirs)
    # Locked before the requests are touched, as a submission does.
    query = sa.select(builds).where(builds.c.sequence.in_(wanted)).order_by(builds.c.sequence).with_for_update()
    rows = connection.execute(query).all()
    connection.execute(sa.delete(build_requests).where(*theirs))
    return sum(not _hand_on(connection, row, now) for row in rows)


def _hand_on(connection: sa.Connection, row: Row, now: datetime) -> bool:
    """Assigns the build to the next version that requested it. Returns whether there is one."""
    query = sa.select(build_requests).where(build_requests.c.build == row.sequence)
    heir = connection.execute(query.order_by(build_requests.c.sequence).limit(1)).one_or_none()
    if heir is not None:
        change(connection, row.sequence, model=heir.model, version=heir.version)
        return True
    if not BuildState(row.state).is_final:  # its worker learns with its next word that it has lost the build
        claims.end(connection, row, now, BuildState.CANCELED)
    change(connection, row.sequence, invalidated=True, artifact=None, error=None, model="", version=0, options={})
    connection.execute(sa.delete(build_events).where(build_events.c.build == row.sequence))
    return False
