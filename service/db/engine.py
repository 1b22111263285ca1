"""The port to a database engine: what SQLite and PostgreSQL do differently."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

import sqlalchemy as sa

from service.core.errors import InvalidInput, OctetError, Unsupported
from service.db.bell import Bell
from service.db.changes import Changes

SQLITE, POSTGRESQL = "sqlite:///", "postgresql://"


class Engine(Protocol):
    """One database, with its connections.

    Attributes:
        reading, writing: the same connections, for transactions of either kind.
        bell: rung when builds wait or end.
        changes: of models.
        lock: held by one thread of all processes that share the database; None where they share a machine.
    """

    reading: sa.Engine
    writing: sa.Engine
    bell: Bell
    changes: Changes
    lock: AbstractContextManager[None] | None

    def prepare(self, connection: sa.Connection) -> None:
        """Makes migrating safe beside other processes, until the transaction ends."""

    def create(self) -> None:
        """Makes the database where there is none, if the engine can."""

    def check(self) -> None:
        """Raises `DatabaseLost`."""

    def now(self, connection: sa.Connection) -> datetime:
        """The time of the database's machine."""

    def translate(self, error: sa.exc.SQLAlchemyError, is_committing: bool) -> OctetError | None:
        """The error that a user understands, if it is one that a user can do something about."""

    def close(self) -> None:
        """Closes every connection that is not in use."""


def engine_of(url: str, timeout_s: float, connections: int, on_lost: Callable[[], None]) -> Engine:
    """Raises `InvalidInput`, `Unsupported`: the URL is of no engine that is known, or installed."""
    if url.startswith(SQLITE):
        from service.db.sqlite import SqliteEngine

        return SqliteEngine(url, timeout_s, on_lost)
    if url.startswith(POSTGRESQL):
        try:
            from service.db.postgresql import PostgresqlEngine
        except ModuleNotFoundError as error:
            raise Unsupported(
                f"PostgreSQL needs {error.name}, which is not installed",
                hint="pip install 'octet-serve[server,postgres]'",
            ) from error

        return PostgresqlEngine(url, timeout_s, connections)
    raise InvalidInput(
        f"a database URL begins with {SQLITE} or {POSTGRESQL}, not with {url.partition(':')[0]!r}",
        hint="postgresql://user:password@host/database",
    )
