"""The connection to SQLite or PostgreSQL: transactions, and the schema that they expect."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from service.core.errors import DatabaseBusy, DatabaseLost, StorageFull
from service.db.migrations import upgrade, versions

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql

_ADVISORY_LOCK = 0x0C7E7  # the number of Octet's migration lock in PostgreSQL; any unused one
_migrating = threading.Lock()  # Alembic keeps its context in module globals


class Database:
    """One database, shared by every process that has its URL.

    On SQLite a writing transaction takes the write lock when it begins: one that read first and wrote later could
    find that another was faster, and would have to be repeated. On PostgreSQL rows are locked instead.

    Args:
        url: `sqlite:///<path>` or `postgresql+psycopg://…`.
        timeout_s: how long to wait for a writer of SQLite.
        on_lost: called, from any thread and perhaps often, when the file is gone or another than it was.
    """

    def __init__(self, url: str, timeout_s: float = 30.0, on_lost: Callable[[], None] = lambda: None) -> None:
        self._timeout_s, self._on_lost = timeout_s, on_lost
        self._inode: int | None = None  # of the file that was migrated
        self._engine = sa.create_engine(url)
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        if self.is_sqlite:
            sa.event.listen(self._engine, "connect", self._on_connect)
            sa.event.listen(self._engine, "begin", _on_begin)
        self._writing = self._engine.execution_options(octet_writes=True)

    def migrate(self) -> None:
        """Brings the schema to what this version of the program expects. Any number of processes may call it at once.

        Raises:
            Unsupported: a newer version of the program has migrated it.
        """
        if self.is_sqlite and self._engine.url.database:
            path = Path(self._engine.url.database)
            _make_sqlite(path, self._timeout_s)
            self._path, self._inode = path, path.stat().st_ino
        with _migrating, self.write() as connection:
            if not self.is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            upgrade(connection)

    def schema(self) -> tuple[str | None, str]:
        """The version of the schema that the database has (None: it is empty), and the one that `migrate` makes."""
        with self.read() as connection:
            return versions(connection)

    def close(self) -> None:
        """Closes every connection that is not in use."""
        self._engine.dispose()

    def _on_connect(self, connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver's own idea of when to begin is none that we want: see _on_begin
        for pragma in (
            f"busy_timeout = {round(1000 * self._timeout_s)}",
            "synchronous = FULL",  # what was acknowledged survives a power cut
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state of the database.

        Raises:
            DatabaseBusy: it was locked for too long.
            DatabaseLost: its file is gone.
        """
        with self._told(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that is committed when the block ends, and rolled back when it raises.

        Raises:
            StorageFull: no space is left.
            DatabaseBusy, DatabaseLost: as `read`.
        """
        with self._told(), self._writing.begin() as connection:
            yield connection

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Translates SQLite's errors into Octet's."""
        self._check_file()
        try:
            yield
        except sa.exc.OperationalError as error:
            code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF  # the rest says more precisely which
            if code == sqlite3.SQLITE_FULL:
                raise StorageFull(hint="make room on the disk of the database") from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise DatabaseBusy(hint="another process holds its lock") from error
            raise

    def _check_file(self) -> None:
        """Connections that have a removed file open still write to it, and new ones see an empty file."""
        if self._inode is None:
            return
        try:
            if self._path.stat().st_ino == self._inode:
                return
        except FileNotFoundError:
            pass
        self._on_lost()
        raise DatabaseLost(f"the database {self._path} is gone", hint="it is being rebuilt from the store's index")


def insert_new(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insertion that does nothing, and returns no row, where it would break a uniqueness constraint."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import postgresql  # 3 MB, for nothing where SQLite serves

    return postgresql.insert(table).on_conflict_do_nothing()


def _make_sqlite(path: Path, timeout_s: float) -> None:
    """A database in WAL mode, where readers do not wait for the writer; the mode stays with the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    until_s = time.monotonic() + timeout_s
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Two processes that change it at once would wait for each other, so SQLite does not let them wait.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                    raise
                time.sleep(random.uniform(0.001, 0.02))


def _on_begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("octet_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
