"""Connections to PostgreSQL with a timeout for every response, even if a proxy keeps the connection alive."""

from __future__ import annotations

from typing import Any

import psycopg


class PatientConnection(psycopg.Connection[Any]):
    """A connection that fails if the server does not respond in time.

    Attributes:
        patience_s: the timeout for each response; None for no timeout.
    """

    patience_s: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        if timeout is not None or self.patience_s is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience_s)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()  # a late response would be taken for the response to the next statement
            raise psycopg.OperationalError(f"no answer for {self.patience_s:g} s") from error
