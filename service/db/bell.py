"""The bell: a notification of changes in the builds table, so that processes need not poll it often."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Protocol

import sqlalchemy as sa

CHANNEL = "octet_builds"


class Bell(Protocol):
    """A notification that any process sends when a build is queued, has ended, or should be canceled.

    A process may miss a notification, so it must also look at the table at regular intervals.

    Attributes:
        look_s: the interval.
    """

    look_s: float

    def rung(self) -> int:
        """Returns the number of notifications that this process has received.

        Call it before looking at the table, and pass the result to `wait`.
        """

    def wait(self, rung: int, stop: threading.Event) -> None:
        """Waits until there are more than `rung` notifications, `stop` is set, or `look_s` has passed."""


def ringing(connection: sa.Connection, statement: sa.Insert) -> sa.Executable:
    """Returns `statement` with a notification that is sent when its transaction is committed."""
    if connection.dialect.name != "postgresql":
        return statement
    return statement.returning(sa.func.pg_notify(CHANNEL, sa.literal_column("''")))


def ring(connection: sa.Connection) -> None:
    """Sends a notification when the transaction is committed. PostgreSQL commits such transactions one at a time."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


class ClockworkBell:
    """The bell of a database without notifications: its count grows with every call, so waiting processes poll."""

    def __init__(self, look_s: float = 0.2) -> None:
        self.look_s = look_s
        self._asked = itertools.count()

    def rung(self) -> int:
        return next(self._asked)

    def wait(self, rung: int, stop: threading.Event) -> None:
        stop.wait(self.look_s)


class Watch:
    """Decides when to look at the table: after a notification, and at the latest after `look_s`."""

    def __init__(self, bell: Bell, look_s: float | None = None) -> None:
        self._bell, self._look_s = bell, bell.look_s if look_s is None else look_s
        self._rung, self._looked_s = -1, 0.0

    def is_due(self) -> bool:
        rung, now_s = self._bell.rung(), time.monotonic()
        if rung == self._rung and now_s - self._looked_s < self._look_s:
            return False
        self._rung, self._looked_s = rung, now_s
        return True
