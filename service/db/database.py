"""The connection to SQLite or PostgreSQL: transactions, and the schema that they expect."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.dialects import postgresql, sqlite

from service.core.errors import StorageFull, Unsupported

_MIGRATIONS = Path(__file__).with_name("migrations")
_BUSY_TIMEOUT_MS = 30_000
_ADVISORY_LOCK = 0x0C7E7  # which migration lock of PostgreSQL is ours: any number that nobody else uses
_migrating = threading.Lock()  # Alembic keeps its context in module globals


class Database:
    """One database, shared by every process that has its URL.

    On SQLite a writing transaction takes the write lock when it begins: one that read first and wrote later could
    find that another was faster, and would have to be repeated. On PostgreSQL rows are locked instead.

    Args:
        url: `sqlite:///<path>` or `postgresql+psycopg://…`.
    """

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        self.is_sqlite = self._engine.dialect.name == "sqlite"
        if self.is_sqlite:
            sa.event.listen(self._engine, "connect", _on_connect)
            sa.event.listen(self._engine, "begin", _on_begin)
        self._writing = self._engine.execution_options(octet_writes=True)

    def migrate(self) -> None:
        """Brings the schema to what this version of the program expects. Any number of processes may call it at once.

        Raises:
            Unsupported: a newer version of the program has migrated it.
        """
        if self.is_sqlite and self._engine.url.database:
            Path(self._engine.url.database).parent.mkdir(parents=True, exist_ok=True)
        with _migrating, self.write() as connection:
            if not self.is_sqlite:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            try:
                command.upgrade(alembic_config(connection), "head")
            except CommandError as error:
                raise Unsupported(
                    f"the database cannot be brought to this version's schema: {error}",
                    hint="it was written by a newer Octet: install that version",
                ) from error

    def schema(self) -> tuple[str | None, str]:
        """The version of the schema that the database has (None: it is empty), and the one that `migrate` makes."""
        with self.read() as connection:
            current = MigrationContext.configure(connection).get_current_revision()
            expected = ScriptDirectory.from_config(alembic_config(connection)).get_current_head()
        assert expected is not None
        return current, expected

    def close(self) -> None:
        """Closes every connection that is not in use."""
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state of the database."""
        with self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction that is committed when the block ends, and rolled back when it raises.

        Raises:
            StorageFull: no space is left.
        """
        try:
            with self._writing.begin() as connection:
                yield connection
        except sa.exc.OperationalError as error:
            if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise StorageFull(hint="make room on the disk of the database") from error
            raise


def insert_new(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """An insertion that does nothing, and returns no row, where it would break a uniqueness constraint."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def alembic_config(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _on_connect(connection: Any, record: Any) -> None:
    connection.isolation_level = None  # the driver's own idea of when to begin is none that we want: see _on_begin
    for pragma in (
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",  # first: the next one may have to wait
        "journal_mode = WAL",  # readers do not wait for the writer
        "synchronous = FULL",  # what was acknowledged survives a power cut
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _on_begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("octet_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
