"""Connections to PostgreSQL that do not wait for ever, also where a proxy keeps them alive."""

from __future__ import annotations

from typing import Any

import psycopg


class PatientConnection(psycopg.Connection[Any]):
    """Gives up what is not answered.

    Attributes:
        patience_s: for how long it waits for any one answer; None for ever.
    """

    patience_s: float | None = None

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        if timeout is not None or self.patience_s is None:
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval, self.patience_s)
        except psycopg.errors._WaitTimeout as error:
            self.pgconn.finish()  # what the answer would be to is unknown to whoever uses it next
            raise psycopg.OperationalError(f"no answer for {self.patience_s:g} s") from error
