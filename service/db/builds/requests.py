"""The requests of builds by model versions. A build is listed as long as it has a request.

No query finds a build without requests. The row of such a build stays, without details, because metrics count the rows,
and these counts must never decrease.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

import sqlalchemy as sa

from service.core.builds.build import BuildState
from service.db.builds import claims
from service.db.rows import Row, change
from service.db.tables import build_events, build_requests, builds

is_wanted = sa.exists().where(build_requests.c.build == builds.c.sequence)


def withdraw(connection: sa.Connection, model: str, versions: Collection[int], now: datetime) -> int:
    """Withdraws the requests of a model's versions. Returns the number of builds that have no request left."""
    theirs = build_requests.c.model == model, build_requests.c.version.in_(versions)
    wanted = sa.select(build_requests.c.build).where(*theirs)
    # Builds are locked before requests are changed, in the same order as by a submission.
    query = sa.select(builds).where(builds.c.sequence.in_(wanted)).order_by(builds.c.sequence).with_for_update()
    rows = connection.execute(query).all()
    connection.execute(sa.delete(build_requests).where(*theirs))
    return sum(not _hand_on(connection, row, now) for row in rows)


def _hand_on(connection: sa.Connection, row: Row, now: datetime) -> bool:
    """Assigns the build to the next version that requested it. Returns false, and ends the build, if no other version
    requested it.
    """
    query = sa.select(build_requests).where(build_requests.c.build == row.sequence)
    heir = connection.execute(query.order_by(build_requests.c.sequence).limit(1)).one_or_none()
    if heir is not None:
        change(connection, row.sequence, model=heir.model, version=heir.version)
        return True
    if not BuildState(row.state).is_final:  # the build's worker gets LeaseLost at its next call
        claims.end(connection, row, now, BuildState.CANCELED)
    change(connection, row.sequence, invalidated=True, artifact=None, error=None, model="", version=0, options={})
    connection.execute(sa.delete(build_events).where(build_events.c.build == row.sequence))
    return False
