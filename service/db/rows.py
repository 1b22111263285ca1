"""Conversions between rows and values of the domain, and changes of a build's row."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from service.core.builds.build import Build, BuildEvent, BuildInputs, BuildState, Stage
from service.core.digest import Digest
from service.core.errors import InvalidInput
from service.db.engines.notifications import with_notification
from service.db.tables import build_events, builds

Row = sa.Row[Any]
_INSERT = sa.insert(build_events)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def build_from(row: Row) -> Build:
    return Build(
        id=row.id,
        key=Digest(row.key),
        model=row.model,
        version=row.version,
        source=Digest(row.source),
        target=row.target,
        numerics=row.numerics,
        state=BuildState(row.state),
        created_at=row.created_at,
        stage=None if row.stage is None else Stage(row.stage),
        progress=row.progress,
        artifact=None if row.artifact is None else Digest(row.artifact),
        error=row.error,
        started_at=row.started_at,
        finished_at=row.finished_at,
        attempt=row.attempt,
        cancel_requested=row.cancel_requested,
        invalidated=row.invalidated,
        options=row.options,
    )


def inputs_from(row: Row) -> BuildInputs:
    return BuildInputs(Digest(row.source), row.target, row.numerics, row.toolchain, row.options)


def event_from(row: Row) -> BuildEvent:
    return BuildEvent(row.sequence, row.at, row.kind, row.data)


def append_event(
    connection: sa.Connection, build: int, at: datetime, kind: str, also: Mapping[str, Any] = _NOTHING, **data: Any
) -> Row:
    """Adds an event to a build's history, and returns the build's row. The caller must have locked the row.

    Args:
        also: columns of the build's row to change, with their new values.
        data: the data of the event.
    """
    row = connection.execute(
        sa.update(builds)
        .where(builds.c.sequence == build)
        .values(last_event=builds.c.last_event + 1, **also)
        .returning(builds)
    ).one()
    is_news = kind == "state" and data["state"] != BuildState.RUNNING
    event = {"build": build, "sequence": row.last_event, "at": at, "kind": kind, "data": data}
    connection.execute(with_notification(connection, _INSERT) if is_news else _INSERT, event)
    return row


def change(connection: sa.Connection, build: int, **values: Any) -> None:
    connection.execute(sa.update(builds).where(builds.c.sequence == build).values(**values))


def position(cursor: str) -> int:
    """Parses the cursor of a page, which is a row number. Raises `InvalidInput` if it is not one."""
    if not cursor.isascii() or not cursor.isdecimal() or len(cursor) > 18:
        raise InvalidInput(f"{cursor!r} is not a cursor", hint="take it from the link to the next page")
    return int(cursor)
