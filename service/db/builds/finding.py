"""Queries for the row of a build, alone or with one of the model versions that requested it."""

from __future__ import annotations

import uuid
from dataclasses import replace

import sqlalchemy as sa

from service.core.builds.build import Build
from service.core.errors import InvalidInput, NotFound
from service.db.builds.requests import is_wanted
from service.db.rows import Row, build_from
from service.db.tables import build_requests, builds

_ID_LENGTH = len(uuid.uuid4().hex)
_SHORTEST_ID = 4  # the shortest prefix that is accepted instead of an id, as in git


def one(connection: sa.Connection, condition: sa.ColumnElement[bool], lock: bool = False) -> Row:
    query = sa.select(builds).where(condition)
    return connection.execute(query.with_for_update() if lock else query).one()


def by_id(connection: sa.Connection, id: str, lock: bool = False) -> Row:
    """Returns the build with this id, or the only build whose id begins with it.

    Raises:
        NotFound: no build has this id or prefix.
        InvalidInput: several builds have this prefix.
    """
    is_it = builds.c.id == id if len(id) >= _ID_LENGTH else builds.c.id.startswith(id, autoescape=True)
    try:
        return one(connection, sa.and_(is_it if len(id) >= _SHORTEST_ID else sa.false(), is_wanted), lock)
    except sa.exc.NoResultFound:
        hint = f"an id has at least {_SHORTEST_ID} characters" if len(id) < _SHORTEST_ID else None
        raise NotFound(f"there is no build {id!r}", hint=hint) from None
    except sa.exc.MultipleResultsFound:
        raise InvalidInput(
            f"the ids of several builds begin with {id!r}", hint="give more characters of the id"
        ) from None


def with_requests(query: sa.Select[tuple[object, ...]]) -> sa.Select[tuple[object, ...]]:
    """Joins a query of builds with their requests, so that the result has a row for each request."""
    return query.add_columns(
        build_requests.c.model.label("requesting_model"), build_requests.c.version.label("requesting_version")
    ).join(build_requests, build_requests.c.build == builds.c.sequence)


def build_with_request(row: Row) -> Build:
    """Returns the build in a row. If the row comes from `with_requests`, model and version are those of the request."""
    build = build_from(row)
    request = row._mapping
    if "requesting_model" not in request:
        return build
    return replace(build, model=request["requesting_model"], version=request["requesting_version"])
