"""Notifications of changes in the builds table, so that processes need not poll it often."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Protocol

import sqlalchemy as sa

CHANNEL = "octet_builds"


class Notifications(Protocol):
    """The notifications that any process sends when a build is queued, has ended, or should be canceled.

    A process may miss a notification, so every process must also look at the table at regular intervals.

    Attributes:
        look_s: the interval.
    """

    look_s: float

    def count(self) -> int:
        """Returns the number of notifications that this process has received.

        Call it before looking at the table, and pass the result to `wait`.
        """

    def wait(self, count: int, stop: threading.Event) -> None:
        """Waits until there are more than `count` notifications, `stop` is set, or `look_s` has passed."""


def with_notification(connection: sa.Connection, statement: sa.Insert) -> sa.Executable:
    """Returns `statement` with a notification that is sent when its transaction is committed."""
    if connection.dialect.name != "postgresql":
        return statement
    return statement.returning(sa.func.pg_notify(CHANNEL, sa.literal_column("''")))


def notify(connection: sa.Connection) -> None:
    """Sends a notification when the transaction is committed. PostgreSQL commits such transactions one at a time."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


class PollingNotifications:
    """Stands in for notifications if the database has none: the count grows with every call, so processes poll."""

    def __init__(self, look_s: float = 0.2) -> None:
        self.look_s = look_s
        self._calls = itertools.count()

    def count(self) -> int:
        return next(self._calls)

    def wait(self, count: int, stop: threading.Event) -> None:
        stop.wait(self.look_s)


class Watch:
    """Decides when to look at the table: after a notification, and at the latest after `look_s`."""

    def __init__(self, notifications: Notifications, look_s: float | None = None) -> None:
        self._notifications, self._look_s = notifications, notifications.look_s if look_s is None else look_s
        self._count, self._looked_s = -1, 0.0

    def is_due(self) -> bool:
        count, now_s = self._notifications.count(), time.monotonic()
        if count == self._count and now_s - self._looked_s < self._look_s:
            return False
        self._count, self._looked_s = count, now_s
        return True
