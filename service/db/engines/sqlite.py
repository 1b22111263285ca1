"""SQLite: a database in one file, for the processes of one machine."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa

from service.core.errors import DatabaseBusy, DatabaseDamaged, DatabaseLost, DataUnusable, OctetError, StorageFull
from service.core.system.usable import unusable
from service.db.engines.changes import Changes
from service.db.engines.notifications import Notifications, PollingNotifications

_UNKNOWN = -1  # the numbers of SQLite's data_version are positive
_CHECKED_BYTES = 64 << 20  # a file up to this size is checked when it is opened, which takes a tenth of a second


class SqliteEngine:
    """The engine for SQLite, see `engine.Engine`.

    A writing transaction takes the write lock when it begins. If it took the lock only after reading, another
    transaction could write in between, and the first transaction would have to be repeated.
    """

    def __init__(self, url: str, timeout_s: float, on_lost: Callable[[], None]) -> None:
        self._timeout_s, self._on_lost = timeout_s, on_lost
        self._inode: int | None = None  # the inode of the file that was migrated
        self.notifications: Notifications = PollingNotifications()
        self.lock: AbstractContextManager[None] | None = None
        self.reading: sa.Engine = sa.create_engine(url)
        sa.event.listen(self.reading, "connect", self._on_connect)
        sa.event.listen(self.reading, "begin", _on_begin)
        self._commits = _Commits(self.reading.url.database)
        self.changes: Changes = self._commits
        self.writing: sa.Engine = self.reading.execution_options(octet_writes=True)

    def create(self) -> None:
        if self.reading.url.database:
            path = Path(self.reading.url.database)
            with _translated(path):
                _make(path, self._timeout_s)
            self._path, self._inode = path, path.stat().st_ino

    def prepare(self, connection: sa.Connection) -> None:
        """Does nothing: the transaction holds the write lock already."""

    def check(self) -> None:
        """Raises `DatabaseLost` if the file was removed or replaced.

        Without this check, open connections would go on writing to a removed file, and new connections to an empty
        file.
        """
        if self._inode is None:
            return
        try:
            if self._path.stat().st_ino == self._inode:
                return
        except FileNotFoundError:
            pass
        self._on_lost()
        raise DatabaseLost(f"the database {self._path} is gone", hint="it is being rebuilt from the store's index")

    def now(self, connection: sa.Connection) -> datetime:
        return datetime.now(UTC)

    def translate(self, error: sa.exc.SQLAlchemyError, is_committing: bool) -> OctetError | None:
        original = error.orig if isinstance(error, sa.exc.DBAPIError) else None
        if not isinstance(original, sqlite3.Error) or not self.reading.url.database:
            return None
        return _understood(original, Path(self.reading.url.database))

    def close(self) -> None:
        self._commits.close()
        self.reading.dispose()

    def _on_connect(self, connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions itself: see _on_begin
        for pragma in (
            f"busy_timeout = {round(1000 * self._timeout_s)}",
            "synchronous = FULL",  # committed transactions survive a power failure
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")


def _understood(error: sqlite3.Error, path: Path) -> OctetError | None:
    """Converts an error that users can act on to one that they understand; returns None for other errors."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the other bits only distinguish variants of an error
    match code:
        case sqlite3.SQLITE_FULL:
            return StorageFull(hint="make room on the disk of the database")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return DatabaseBusy(hint="another process holds its lock")
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return _damaged(path, str(error))
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_IOERR:
            return _unusable(path, error)
    return None


def _damaged(path: Path, why: str) -> DatabaseDamaged:
    return DatabaseDamaged(
        f"the database {path} is damaged: {why}",
        hint=f"octet doctor --repair --data-dir {path.parent} moves it aside, and rebuilds its tables from the store",
    )


def _unusable(path: Path, error: sqlite3.Error) -> OctetError:
    """Finds out why a file cannot be opened or written, because SQLite does not report the reason."""
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        if each.is_dir():
            return _damaged(path, f"{each.name} is a folder")
        try:
            if each.exists():
                each.open("r+b").close()
        except OSError as reason:
            return unusable(each, reason)
    try:
        probe = path.with_name(f".{path.name}.write-test")
        probe.touch()
        probe.unlink()
    except OSError as reason:
        return unusable(path.parent, reason)
    return DataUnusable(f"the database {path} cannot be used: {error}", hint="octet doctor checks the data directory")


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Converts errors of files and of the driver to errors that users understand."""
    try:
        yield
    except OSError as error:
        raise unusable(Path(error.filename or path), error) from error
    except sqlite3.Error as error:
        if (understood := _understood(error, path)) is not None:
            raise understood from error
        raise


class _Commits:
    """The changes of a SQLite database, see `changes.Changes`.

    SQLite counts the commits of other connections, but does not report what they changed. So after any commit, every
    model may have changed.
    """

    def __init__(self, database: str | None) -> None:
        """
        Args:
            database: the path of the file; None or empty for a database in memory, which no other process uses.
        """
        self._database = database
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0  # the inode of the open file; the file may be replaced

    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        if not self._database:
            return _UNKNOWN, None
        with self._lock:
            version = self._version()
        return version, (() if version == mark and version != _UNKNOWN else None)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _version(self) -> int:
        """Returns a number that changes with every commit; `_UNKNOWN` if it cannot be determined."""
        assert self._database
        try:
            inode = Path(self._database).stat().st_ino
            if self._connection is None or inode != self._inode:
                if self._connection is not None:
                    self._connection.close()
                self._connection = sqlite3.connect(
                    f"file:{quote(self._database)}?mode=ro", uri=True, check_same_thread=False
                )
                self._inode = inode
                return _UNKNOWN
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except (OSError, sqlite3.Error):
            return _UNKNOWN
        return int(version)


def _make(path: Path, timeout_s: float) -> None:
    """Creates a database in WAL mode, in which readers do not wait for the writer. The file keeps the mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    until_s = time.monotonic() + timeout_s
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                check_pages(connection, path)
                return
            except sqlite3.OperationalError as error:
                # If two processes change the mode at the same time, SQLite fails at once instead of letting one of them
                # wait.
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until_s:
                    raise
                time.sleep(random.uniform(0.001, 0.02))


def check_file(path: Path) -> None:
    """Checks all pages of a database file.

    Raises:
        DatabaseDamaged: the file is damaged.
        OctetError: the file cannot be read for another reason.
    """
    with _translated(path), closing(sqlite3.connect(path)) as connection:
        check_pages(connection, path, most_bytes=path.stat().st_size)


def check_pages(connection: sqlite3.Connection, path: Path, most_bytes: int = _CHECKED_BYTES) -> None:
    """Checks all pages of the file if it is not larger than `most_bytes`. Raises `DatabaseDamaged` if it is damaged."""
    if path.stat().st_size <= most_bytes:
        (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if finding != "ok":
            raise _damaged(path, " ".join(str(finding).split()))


def _on_begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("octet_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
