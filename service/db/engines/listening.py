"""Receives PostgreSQL's notifications (LISTEN) on a separate connection and thread."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from service.core.system.outage import Outage
from service.db.engines.changes import CHANNEL as MODELS
from service.db.engines.changes import Journal
from service.db.engines.notifications import CHANNEL as BUILDS

if TYPE_CHECKING:
    from service.db.engines.patience import PatientConnection

_logger = logging.getLogger(__name__)
_LOOK_S = 2.0
_CHECK_S = 5.0  # after this long without a notification, a query checks that the connection works
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
_SLICE_S = 0.1  # the longest time until a waiting thread notices that it should stop


class Listener:
    """The notifications of PostgreSQL: see `notifications.Notifications` and `changes.Changes`.

    The listener connects at the first call of `count` or `since`, and again whenever the connection is lost. After each
    connection, it counts one notification and treats every model as changed, because it may have missed notifications.
    """

    look_s = _LOOK_S

    def __init__(self, connect: Callable[[], PatientConnection]) -> None:
        self._connect = connect
        self._changed = threading.Condition()
        self._count = 0
        self._journal = Journal()
        self._is_listening = False
        self._thread: threading.Thread | None = None
        self._closed, self._outage = threading.Event(), Outage(_logger)

    def count(self) -> int:
        with self._changed:
            self._start()
            return self._count

    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        with self._changed:
            self._start()
            return self._journal.since(mark) if self._is_listening else (-1, None)

    def wait(self, count: int, stop: threading.Event) -> None:
        until_s = time.monotonic() + self.look_s
        with self._changed:
            while self._count == count and not stop.is_set() and time.monotonic() < until_s:
                self._changed.wait(_SLICE_S)

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> None:
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._listen, name="octet-listener", daemon=True)
            self._thread.start()

    def _listen(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._closed.is_set():
            try:
                with self._connect() as connection:
                    for channel in (BUILDS, MODELS):
                        connection.execute(f"LISTEN {channel}".encode())
                    pause_s = _FIRST_PAUSE_S
                    self._start_listening()
                    self._outage.ended("LISTEN of the database")
                    self._receive_notifications(connection)
            except Exception as error:  # all errors are caught, because only this thread can reconnect
                with self._changed:
                    self._is_listening = False
                self._outage.began(f"no notifications from the database: {str(error).partition(chr(10))[0]}")
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _receive_notifications(self, connection: PatientConnection) -> None:
        received_s = time.monotonic()
        while not self._closed.is_set():
            for notice in connection.notifies(timeout=_SLICE_S, stop_after=1):
                received_s = time.monotonic()
                if notice.channel == MODELS:
                    with self._changed:
                        self._journal.note(notice.payload)
                else:
                    self._count_notification()
            if time.monotonic() - received_s > _CHECK_S:
                connection.execute(b"SELECT 1")
                received_s = time.monotonic()

    def _start_listening(self) -> None:
        with self._changed:
            self._journal.note_gap()
            self._is_listening = True
        self._count_notification()

    def _count_notification(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()
