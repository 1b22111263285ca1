"""The database: its transactions, which are repeated if that is safe, and its schema."""

from __future__ import annotations

import functools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from service.core.clock import Clock
from service.core.errors import DatabaseBusy, DatabaseUnreachable
from service.core.settings import Settings
from service.core.system.outage import Outage
from service.db.engines.changes import Changes
from service.db.engines.engine import SQLITE, engine_of
from service.db.engines.notifications import Notifications
from service.db.migrations import upgrade, versions

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_logger = logging.getLogger(__name__)
_migrating = threading.Lock()  # Alembic keeps its context in module globals
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
CONNECTIONS = 10

T = TypeVar("T")
P = ParamSpec("P")


class Database:
    """One database, shared by all processes that use its URL.

    Args:
        url: `sqlite:///<path>` or `postgresql://…`.
        timeout_s: how long to wait for a lock or a connection, and how long to retry a database that does not respond.
        on_lost: a function that is called, from any thread and perhaps often, if the file was removed or replaced.
        connections: the largest number of connections to PostgreSQL.

    Attributes:
        lock: see `engine.Engine`.

    Raises:
        InvalidInput, Unsupported: as `engine_of`.
    """

    def __init__(
        self,
        url: str,
        timeout_s: float = 30.0,
        on_lost: Callable[[], None] = lambda: None,
        connections: int = CONNECTIONS,
    ) -> None:
        self._timeout_s, self._outage = timeout_s, Outage(_logger)
        self._engine = engine_of(url, timeout_s, connections, on_lost)
        self.is_sqlite = url.startswith(SQLITE)
        self.lock: AbstractContextManager[None] | None = self._engine.lock

    @classmethod
    def of(cls, settings: Settings, on_lost: Callable[[], None] = lambda: None) -> Database:
        """Returns the database that `settings` name."""
        timeout_s, connections = settings.database_timeout_s, settings.database_connections
        return cls(settings.url_of_database, timeout_s, on_lost, connections)

    @property
    def notifications(self) -> Notifications:
        return self._engine.notifications

    @property
    def changes(self) -> Changes:
        return self._engine.changes

    def migrate(self) -> None:
        """Brings the schema to the version that this release expects. Several processes may call it at the same time.

        Raises:
            Unsupported: a newer release has migrated the schema, and this release cannot work with the result.
            DatabaseUnreachable: the database did not respond for `timeout_s`.
        """
        self._engine.create()
        self.again(self._migrate, is_idempotent=True)

    def _migrate(self) -> None:
        with _migrating, self.write() as connection:
            self._engine.prepare(connection)
            upgrade(connection)

    def schema(self) -> tuple[str | None, str]:
        """Returns the schema version of the database (None if the database is empty), and the version that `migrate`
        brings the database to.
        """
        with self.read() as connection:
            return versions(connection)

    def close(self) -> None:
        """Closes every connection that is not in use."""
        self._engine.close()

    def now(self, connection: sa.Connection, clock: Clock | None) -> datetime:
        """Returns the time for the tables: that of the database's machine, or of `clock` if a test passes one."""
        return self._engine.now(connection) if clock is None else clock.now()

    def read(self) -> AbstractContextManager[sa.Connection]:
        """Starts a reading transaction. The transaction sees one state of the database; on PostgreSQL, one state per
        statement.

        Raises:
            DatabaseBusy: the database was locked for too long.
            DatabaseUnreachable: the database does not respond.
            DatabaseLost: the database file was removed or replaced.
        """
        return self._transaction(self._engine.reading)

    def write(self) -> AbstractContextManager[sa.Connection]:
        """Starts a writing transaction. The transaction is committed when the block ends, and rolled back if the block
        raises.

        Raises:
            StorageFull: no space is left.
            DatabaseBusy, DatabaseUnreachable, DatabaseLost: as in `read`.
        """
        return self._transaction(self._engine.writing)

    @contextmanager
    def _transaction(self, connections: sa.Engine) -> Iterator[sa.Connection]:
        self._engine.check()
        is_committing = False
        try:
            with connections.connect() as connection, connection.begin() as transaction:
                yield connection
                is_committing = True
                transaction.commit()
        except sa.exc.SQLAlchemyError as error:
            translated = self._engine.translate(error, is_committing)
            if translated is None:
                raise
            if isinstance(translated, DatabaseUnreachable):
                self._outage.began(translated)
            raise translated from error
        self._outage.ended("the database")

    def again(self, work: Callable[[], T], is_idempotent: bool, within_s: float | None = None) -> T:
        """Calls `work`, and calls it again if its transaction failed without changing anything.

        Args:
            work: a function of which everything except its last transaction may be repeated.
            is_idempotent: True if `work` may be repeated even if it is unknown whether the transaction was committed.
            within_s: how long to try; by default `timeout_s`.
        """
        until_s = time.monotonic() + (self._timeout_s if within_s is None else within_s)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return work()
            except (DatabaseBusy, DatabaseUnreachable) as error:
                may_repeat = error.is_undone or (is_idempotent and isinstance(error, DatabaseUnreachable))
                if not may_repeat or time.monotonic() + pause_s > until_s:
                    raise
                if pause_s == _FIRST_PAUSE_S and not isinstance(error, DatabaseUnreachable):
                    _logger.warning("%s; trying again", error)
            time.sleep(random.uniform(0.5, 1.0) * pause_s)  # random, so that clients do not retry at the same time
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class OnDatabase(Protocol):
    """The interface of classes whose methods use the decorators below."""

    @property
    def _database(self) -> Database: ...


S = TypeVar("S", bound=OnDatabase)


def repeated(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorates an idempotent method: repeats it if the connection was lost."""
    return _repeated(method, is_idempotent=True)


def repeated_if_undone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Decorates a method that is not idempotent: repeats it only if the lost transaction certainly changed nothing."""
    return _repeated(method, is_idempotent=False)


def _repeated(method: Callable[Concatenate[S, P], T], is_idempotent: bool) -> Callable[Concatenate[S, P], T]:
    @functools.wraps(method)
    def repeating(self: S, *arguments: P.args, **named: P.kwargs) -> T:
        return self._database.again(lambda: method(self, *arguments, **named), is_idempotent)

    return cast(Callable[Concatenate[S, P], T], repeating)


def insert_new(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Returns an insertion that does nothing, and returns no row, if it would violate a uniqueness constraint."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return _postgresql_insert(table).on_conflict_do_nothing()


def upsert(connection: sa.Connection, table: sa.Table, changed: Sequence[str]) -> sqlite.Insert | postgresql.Insert:
    """Returns an upsert: it inserts the row, or updates the columns `changed` if the row exists."""
    insert = sqlite.insert(table) if connection.dialect.name == "sqlite" else _postgresql_insert(table)
    return insert.on_conflict_do_update(
        index_elements=table.primary_key.columns, set_={name: insert.excluded[name] for name in changed}
    )


def _postgresql_insert(table: sa.Table) -> postgresql.Insert:
    from sqlalchemy.dialects import postgresql  # 3 MB, not needed with SQLite

    return postgresql.insert(table)
