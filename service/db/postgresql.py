"""PostgreSQL: one server, for any number of machines.

No wait is without an end. The server ends statements and waits for locks, and forgets transactions that say nothing;
this side gives up what is not answered at all, also where a proxy keeps the connection alive.
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
from service.db.bell import Bell
from service.db.changes import Changes
from service.db.listening import Listener
from service.db.patience import PatientConnection

_LOCK = 0x0C7E7  # the number of Octet's locks in PostgreSQL; any unused one
_CONNECT_S = 5
_MARGIN_S = 2.0  # the server is to say first that something takes too long: then the connection is still of use
# Notices within 11 s that the other machine is gone, or that packets are dropped.
_KEEP_ALIVE: dict[str, Any] = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_TOO_LONG = ("55P03", "57014")  # lock_not_available, query_canceled
_UNDONE = ("40001", "40P01")  # serialization_failure, deadlock_detected
_STANDBY = "25006"  # read_only_sql_transaction: it was the primary when we connected
_ENDING = ("57P01", "57P02", "57P03")  # the server stops, crashed or starts
_FULL = ("53100",)


class PostgresqlEngine:
    """See `engine.Engine`. Rows are locked, not the database.

    Args:
        url: as libpq reads it, of one host or of several (`target_session_attrs=read-write` finds the primary).
        timeout_s: for a statement, a lock, a free connection.
        connections: at most so many at a time, besides one that listens and one that holds the lock.
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
        self.bell: Bell = self._listener
        self.changes: Changes = self._listener
        self.lock: AbstractContextManager[None] | None = _ClusterLock(self)

    def create(self) -> None:
        """An administrator does."""

    def prepare(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")  # tables may be large

    def check(self) -> None:
        """Where it is, is found out with the next statement."""

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
            unreachable = DatabaseUnreachable(f"the database does not answer: {_line(error)}")
            unreachable.is_undone = not is_committing
            return unreachable
        if state == _STANDBY:
            self.writing.dispose()
            return DatabaseUnreachable("the database is a standby now", hint="name all hosts in the URL")
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
        """A connection outside the pool, whose statements are transactions of their own."""
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
    """One thread at a time, of all processes of all machines. The server frees it when its connection ends."""

    def __init__(self, engine: PostgresqlEngine) -> None:
        self._engine, self._here = engine, Lock()
        self._held: AbstractContextManager[PatientConnection] | None = None

    def __enter__(self) -> None:
        self._here.acquire()  # so that a process waits on one connection only
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
    return DatabaseUnreachable(f"the database does not answer: {str(error).splitlines()[0]}")


def _parameters(url: str, timeout_s: float) -> dict[str, Any]:
    said = conninfo_to_dict(url)
    timeout_ms = max(1, round(1000 * timeout_s))
    options = {
        "statement_timeout": timeout_ms,
        "lock_timeout": timeout_ms,
        "idle_in_transaction_session_timeout": 2 * timeout_ms,  # or rows stay locked by a machine that is gone
        "tcp_keepalives_idle": 5,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
        "timezone": "UTC",
    }
    ours = " ".join(f"-c{name}={value}" for name, value in options.items())
    defaults = {"application_name": "octet", "connect_timeout": _CONNECT_S, **_KEEP_ALIVE}
    # Of a database of SQL_ASCII the driver would give bytes for text.
    return {**defaults, **said, "client_encoding": "UTF8", "options": f"{ours} {said.get('options') or ''}".strip()}


def _is_unconnected(error: sa.exc.DBAPIError) -> bool:
    """Whether there was no connection yet: then the driver knows no SQLSTATE."""
    return isinstance(error.orig, psycopg.OperationalError) and error.orig.sqlstate is None


def _line(error: sa.exc.DBAPIError) -> str:
    return str(error.orig).splitlines()[0]
