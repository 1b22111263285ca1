"""The interface of a database engine: the operations that differ between SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

import sqlalchemy as sa

from service.core.errors import InvalidInput, OctetError, Unsupported
from service.db.engines.changes import Changes
from service.db.engines.notifications import Notifications

SQLITE, POSTGRESQL = "sqlite:///", "postgresql://"


class Engine(Protocol):
    """One database, with its connections.

    Attributes:
        reading, writing: the connections, for reading transactions and for writing ones.
        notifications: the notifications of builds that are queued or have ended.
        changes: the changes of models.
        lock: a lock that at most one thread of all processes that share the database can hold; None if these processes
            are always on one machine.
    """

    reading: sa.Engine
    writing: sa.Engine
    notifications: Notifications
    changes: Changes
    lock: AbstractContextManager[None] | None

    def prepare(self, connection: sa.Connection) -> None:
        """Prevents other processes from migrating until the transaction ends."""

    def create(self) -> None:
        """Creates the database if it does not exist and the engine can create it."""

    def check(self) -> None:
        """Raises `DatabaseLost` if the database file was removed or replaced."""

    def now(self, connection: sa.Connection) -> datetime:
        """Returns the time of the database's machine."""

    def translate(self, error: sa.exc.SQLAlchemyError, is_committing: bool) -> OctetError | None:
        """Converts an error that users can act on to one that they understand; returns None for other errors.

        Args:
            is_committing: True if the error occurred during the commit.
        """

    def close(self) -> None:
        """Closes every connection that is not in use."""


def engine_of(url: str, timeout_s: float, connections: int, on_lost: Callable[[], None]) -> Engine:
    """Returns the engine for a URL.

    Raises:
        InvalidInput: the URL does not belong to a supported engine.
        Unsupported: the package of the engine is not installed.
    """
    if url.startswith(SQLITE):
        from service.db.engines.sqlite import SqliteEngine

        return SqliteEngine(url, timeout_s, on_lost)
    if url.startswith(POSTGRESQL):
        try:
            from service.db.engines.postgresql import PostgresqlEngine
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
