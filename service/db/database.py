"""The database: transactions, which are repeated where that is safe, and the schema that they expect."""

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
from service.core.outage import Outage
from service.core.settings import Settings
from service.db.bell import Bell
from service.db.changes import Changes
from service.db.engine import SQLITE, engine_of
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
    """One database, shared by every process that has its URL.

    Args:
        url: `sqlite:///<path>` or `postgresql://…`.
        timeout_s: how long to wait for a lock or a connection, and to try again where the database does not answer.
        on_lost: called, from any thread and perhaps often, when the file is gone or another than it was.
        connections: at most so many at a time; of PostgreSQL.

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
        """The database that `settings` name."""
        timeout_s, connections = settings.database_timeout_s, settings.database_connections
        return cls(settings.url_of_database, timeout_s, on_lost, connections)

    @property
    def bell(self) -> Bell:
        return self._engine.bell

    @property
    def changes(self) -> Changes:
        return self._engine.changes

    def migrate(self) -> None:
        """Brings the schema to what this version of the program expects. Any number of processes may call it at once.

        Raises:
            Unsupported: a newer version of the program has migrated it to what this one cannot work with.
            DatabaseUnreachable: there is no answer for `timeout_s`.
        """
        self._engine.create()
        self.again(self._migrate, is_idempotent=True)

    def _migrate(self) -> None:
        with _migrating, self.write() as connection:
            self._engine.prepare(connection)
            upgrade(connection)

    def schema(self) -> tuple[str | None, str]:
        """The version of the schema that the database has (None: it is empty), and the one that `migrate` makes."""
        with self.read() as connection:
            return versions(connection)

    def close(self) -> None:
        """Closes every connection that is not in use."""
        self._engine.close()

    def now(self, connection: sa.Connection, clock: Clock | None) -> datetime:
        """The time that is written to the tables: of the database's machine, or of `clock`, which a test may give."""
        return self._engine.now(connection) if clock is None else clock.now()

    def read(self) -> AbstractContextManager[sa.Connection]:
        """A transaction that sees one state of the database, or of each statement on PostgreSQL.

        Raises:
            DatabaseBusy: it was locked for too long.
            DatabaseUnreachable: it does not answer.
            DatabaseLost: its file is gone.
        """
        return self._transaction(self._engine.reading)

    def write(self) -> AbstractContextManager[sa.Connection]:
        """A transaction that is committed when the block ends, and rolled back when it raises.

        Raises:
            StorageFull: no space is left.
            DatabaseBusy, DatabaseUnreachable, DatabaseLost: as `read`.
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
        """Does `work`, and does it again where its transaction is known to have changed nothing; for `within_s`.

        Args:
            work: all of it but its last transaction may be done more than once.
            is_idempotent: it may be done again, too, where that is unknown.
            within_s: `timeout_s` by default.
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
            time.sleep(random.uniform(0.5, 1.0) * pause_s)  # not all clients at once
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class OnDatabase(Protocol):
    """What the decorators below ask of the class of a method."""

    @property
    def _database(self) -> Database: ...


S = TypeVar("S", bound=OnDatabase)


def repeated(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that is done again where the connection was lost: doing it twice is as good as once."""
    return _repeated(method, is_idempotent=True)


def repeated_if_undone(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """A method that is done again where it is known that nothing was changed, and raises where that is not known."""
    return _repeated(method, is_idempotent=False)


def _repeated(method: Callable[Concatenate[S, P], T], is_idempotent: bool) -> Callable[Concatenate[S, P], T]:
    @functools.wraps(method)
    def repeating(self: S, *arguments: P.args, **named: P.kwargs) -> T:
        return self._database.again(lambda: method(self, *arguments, **named), is_idempotent)

    return cast(Callable[Concatenate[S, P], T], repeating)


def insert_new(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insertion that does nothing, and returns no row, where it would break a uniqueness constraint."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return _postgresql_insert(table).on_conflict_do_nothing()


def upsert(connection: sa.Connection, table: sa.Table, changed: Sequence[str]) -> sqlite.Insert | postgresql.Insert:
    """An insertion that, where the row is there, sets the columns `changed` of it."""
    insert = sqlite.insert(table) if connection.dialect.name == "sqlite" else _postgresql_insert(table)
    return insert.on_conflict_do_update(
        index_elements=table.primary_key.columns, set_={name: insert.excluded[name] for name in changed}
    )


def _postgresql_insert(table: sa.Table) -> postgresql.Insert:
    from sqlalchemy.dialects import postgresql  # 3 MB, for nothing where SQLite serves

    return postgresql.insert(table)
