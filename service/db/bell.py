"""Waiting for a change of the builds table without reading it over and over."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Protocol

import sqlalchemy as sa

CHANNEL = "octet_builds"


class Bell(Protocol):
    """Rung by any process when a build waits, ends or is to be canceled.

    A process that slept through it has to be safe: what matters is looked at now and then in any case.

    Attributes:
        look_s: how often.
    """

    look_s: float

    def rung(self) -> int:
        """How often it has rung, as far as is known here; to be asked before looking, and given to `wait`."""

    def wait(self, rung: int, stop: threading.Event) -> None:
        """Returns when it has rung since it had rung so often; when `stop` is set; after `look_s`."""


def ringing(connection: sa.Connection, statement: sa.Insert) -> sa.Executable:
    """The same insertion, which rings it when the transaction is committed."""
    if connection.dialect.name != "postgresql":
        return statement
    return statement.returning(sa.func.pg_notify(CHANNEL, sa.literal_column("''")))


def ring(connection: sa.Connection) -> None:
    """Rings it when the transaction is committed. PostgreSQL commits such transactions one after the other."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"NOTIFY {CHANNEL}")


class ClockworkBell:
    """Where nobody rings: it is as if it rang all the time."""

    def __init__(self, look_s: float = 0.2) -> None:
        self.look_s = look_s
        self._asked = itertools.count()

    def rung(self) -> int:
        return next(self._asked)

    def wait(self, rung: int, stop: threading.Event) -> None:
        stop.wait(self.look_s)


class Watch:
    """Says when to look: where the bell has rung since the last time, and after `look_s`."""

    def __init__(self, bell: Bell, look_s: float | None = None) -> None:
        self._bell, self._look_s = bell, bell.look_s if look_s is None else look_s
        self._rung, self._looked_s = -1, 0.0

    def is_due(self) -> bool:
        rung, now_s = self._bell.rung(), time.monotonic()
        if rung == self._rung and now_s - self._looked_s < self._look_s:
            return False
        self._rung, self._looked_s = rung, now_s
        return True
