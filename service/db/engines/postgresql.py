"""PostgreSQL: one database server, for any number of machines.

Every wait is bounded. The server has timeouts for statements, for locks, and for idle transactions. The client has a
timeout for every response, even if a proxy keeps the connection alive.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from threading import Lock
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict

from service.core.errors import DatabaseBusy, DatabaseUnreachable, OctetError, StorageFull
from service.db.engines.changes import Changes
from service.db.engines.listening import Listener
from service.db.engines.notifications import Notifications
from service.db.engines.patience import PatientConnection

_LOCK = 0x0C7E7  # the number of Octet's advisory locks in PostgreSQL; an arbitrary unused one
_CONNECT_S = 5
# How much longer the client waits than the server, because a connection survives a timeout of the server.
_MARGIN_S = 2.0
# With these values the client detects within 11 s that the other machine is gone, or that packets are dropped.
_KEEP_ALIVE: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_TOO_LONG = ("55P03", "57014")  # lock_not_available, query_canceled
_UNDONE = ("40001", "40P01")  # serialization_failure, deadlock_detected
_STANDBY = "25006"  # read_only_sql_transaction: the server was the primary when the client connected
_ENDING = ("57P01", "57P02", "57P03")  # the server is stopping, has crashed, or is starting
_FULL = ("53100",)


class PostgresqlEngine:
    """The engine for PostgreSQL, see `engine.Engine`. Transactions lock rows, not the database.

    Args:
        url: a URL that libpq accepts, with one host or several (`target_session_attrs=read-write` finds the primary).
        timeout_s: the timeout for a statement, for a lock, and for a free connection.
        connections: the largest number of connections, in addition to one for notifications and one for the lock.
    """

    def __init__(self, url: str, timeout_s: float, connections: int) -> None:
        self._parameters = _parameters(url, timeout_s)
        self._timeout_s = timeout_s
        self.writing = sa.create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=timeout_s,
            pool_use_lifo=True,
        )
        self._listener = Listener(lambda: self._connect(autocommit=True))
        self.reading: sa.Engine = self.writing.execution_options(isolation_level="AUTOCOMMIT")
        self.notifications: Notifications = self._listener
        self.changes: Changes = self._listener
        self.lock: AbstractContextManager[None] | None = _ClusterLock(self)

    def create(self) -> None:
        """Does nothing: an administrator creates PostgreSQL databases."""

    def prepare(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # a migration of large tables takes long

    def check(self) -> None:
        """Does nothing: the next statement fails if the server is unreachable."""

    def now(self, connection: sa.Connection) -> datetime:
        now: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return now

    def translate(self, error: sa.exc.SQLAlchemyError, is_committing: bool) -> OctetError | None:
        if isinstance(error, sa.exc.TimeoutError):
            return DatabaseBusy("all connections to the database are in use", hint="raise database_connections")
        if not isinstance(error, sa.exc.DBAPIError):
            return None
        state = getattr(error.orig, "sqlstate", None)
        if error.connection_invalidated or state in _ENDING or _is_unconnected(error):
            unreachable = DatabaseUnreachable(f"the database does not respond: {_line(error)}")
            unreachable.is_undone = not is_committing
            return unreachable
        if state == _STANDBY:
            self.writing.dispose()
            return DatabaseUnreachable(
                "the database server is now a read-only standby", hint="name all hosts in the URL"
            )
        if state in _FULL:
            return StorageFull(hint="make room on the disk of the database")
        if state in (*_TOO_LONG, *_UNDONE):
            busy = DatabaseBusy(f"the database is busy: {_line(error)}")
            busy.is_undone = state in _UNDONE
            return busy
        return None

    def close(self) -> None:
        self._listener.close()
        self.writing.dispose()

    @contextmanager
    def lone(self) -> Iterator[PatientConnection]:
        """Opens a connection outside the pool, in autocommit mode."""
        connection = self._connect(autocommit=True)
        try:
            yield connection
        finally:
            connection.close()

    def _connect(self, autocommit: bool = False) -> PatientConnection:
        connection = PatientConnection.connect(**self._parameters, autocommit=autocommit)
        connection.patience_s = self._timeout_s + _MARGIN_S
        return connection


class _ClusterLock:
    """A lock that one thread holds at a time, among all processes of all machines.

    The lock is an advisory lock of the server, which frees it when the holder's connection ends.
    """

    def __init__(self, engine: PostgresqlEngine) -> None:
        self._engine, self._here = engine, Lock()
        self._held: AbstractContextManager[PatientConnection] | None = None

    def __enter__(self) -> None:
        # Threads of this process wait here for each other, so that only one of them uses a connection for waiting.
        self._here.acquire()
        try:
            self._held = self._engine.lone()
            connection = self._held.__enter__()
            try:
                connection.execute(f"SELECT pg_advisory_lock({_LOCK}, hashtext(current_schema()))".encode())
            except BaseException:
                connection.close()
                raise
        except psycopg.OperationalError as error:
            self._here.release()
            raise _unlocked(error) from error
        except BaseException:
            self._here.release()
            raise

    def __exit__(self, *raised: object) -> None:
        held, self._held = self._held, None
        try:
            assert held is not None
            held.__exit__(None, None, None)
        finally:
            self._here.release()


def _unlocked(error: psycopg.OperationalError) -> OctetError:
    if error.sqlstate in _TOO_LONG:
        return DatabaseBusy("another process holds the lock of the store's index")
    return DatabaseUnreachable(f"the database does not respond: {str(error).splitlines()[0]}")


def _parameters(url: str, timeout_s: float) -> dict[str, Any]:
    given = conninfo_to_dict(url)
    timeout_ms = max(1, round(1000 * timeout_s))
    options = {
        "statement_timeout": timeout_ms,
        "lock_timeout": timeout_ms,
        "idle_in_transaction_session_timeout": 2
        * timeout_ms,  # otherwise a machine that has disappeared would keep its rows locked
        "tcp_keepalives_idle": 5,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "timezone": "UTC",
    }
    ours = " ".join(f"-c{name}={value}" for name, value in options.items())
    defaults = {"application_name": "octet", "connect_timeout": _CONNECT_S, **_KEEP_ALIVE}
    # UTF8, because the driver returns bytes instead of text from a database whose encoding is SQL_ASCII.
    return {**defaults, **given, "client_encoding": "UTF8", "options": f"{ours} {given.get('options') or ''}".strip()}


def _is_unconnected(error: sa.exc.DBAPIError) -> bool:
    """Returns true if no connection was established: the driver's error then has no SQLSTATE."""
    return isinstance(error.orig, psycopg.OperationalError) and error.orig.sqlstate is None


def _line(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).splitlines()[0]
