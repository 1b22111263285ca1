"""Logs an outage of the database: once when it begins, and once when it ends."""

from __future__ import annotations

import logging
import threading
from time import monotonic

from service.core.errors import DatabaseUnreachable


class Outage:
    """The state of an outage, for code that retries until the database responds. This class is thread-safe.

    Args:
        logger: the logger of that code.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._lock = logger, threading.Lock()
        self._since_s: float | None = None

    def began(self, what: object) -> None:
        """Records a failed attempt. The first one of an outage is logged, with `what` as its reason."""
        with self._lock:
            if self._since_s is None:
                self._since_s = monotonic()
                self._logger.warning("%s; retrying until it responds", what)

    def ended(self, what: str) -> None:
        """Records a successful attempt. The attempt is logged if it ends an outage; `what` names the service that
        responds again.
        """
        if self._since_s is None:
            return
        with self._lock:
            since_s, self._since_s = self._since_s, None
            if since_s is not None:
                self._logger.warning("%s responds again, after %.1f s", what, monotonic() - since_s)


def log_trouble(logger: logging.Logger, error: Exception, message: str, *arguments: object) -> None:
    """Logs the error that ended work which will be retried, with a traceback.

    Logs nothing if the database is unreachable: its `Outage` has logged that already.
    """
    if not isinstance(error, DatabaseUnreachable):
        logger.error(message, *arguments, exc_info=error)
