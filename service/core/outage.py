"""What is said of a database that does not answer: once that it is gone, and once that it is back."""

from __future__ import annotations

import logging
import threading
from time import monotonic

from service.core.errors import DatabaseUnreachable


class Outage:
    """For whoever asks again and again. From any thread.

    Args:
        logger: of whoever asks.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._lock = logger, threading.Lock()
        self._since_s: float | None = None

    def began(self, what: object) -> None:
        """There was no answer; `what` to say of it, where that is news."""
        with self._lock:
            if self._since_s is None:
                self._since_s = monotonic()
                self._logger.warning("%s; it is asked again until it answers", what)

    def ended(self, what: str) -> None:
        """There was an answer of `what`."""
        if self._since_s is None:
            return
        with self._lock:
            since_s, self._since_s = self._since_s, None
            if since_s is not None:
                self._logger.warning("%s answers again, after %.1f s", what, monotonic() - since_s)


def log_trouble(logger: logging.Logger, error: Exception, message: str, *arguments: object) -> None:
    """Why work that is tried again did not get done. Of a database that does not answer its `Outage` has spoken."""
    if not isinstance(error, DatabaseUnreachable):
        logger.error(message, *arguments, exc_info=error)
