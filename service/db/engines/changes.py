"""Notifications of changed models, so that servers need not read the rows of their models again and again.

A server looks up the rows of each model that it serves only if they have changed. Without notifications, a thousand
servers with a hundred models each would send half a million queries per second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Protocol

CHANNEL = "octet_models"  # the channel to which triggers in PostgreSQL send notifications: migrations/versions
_REMEMBERED = 10_000


class Changes(Protocol):
    """The changes of versions, aliases and succeeded builds that any process made.

    A process may miss a change, for example if a connection pooler drops notifications. So every process must also look
    at the tables at regular intervals.
    """

    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        """Returns a mark for the next call, and the models that have changed since `mark`; None if any model may have
        changed.

        The first mark is -1. The call may block for about as long as a query.
        """


class Journal:
    """The numbered list of the last changes. It is not thread-safe."""

    def __init__(self) -> None:
        self._models: deque[str] = deque(maxlen=_REMEMBERED)
        self._noted = 0
        self._gap = 0  # the number of the last unknown change

    def note(self, model: str) -> None:
        self._models.append(model)
        self._noted += 1

    def note_gap(self) -> None:
        """Records that changes were missed, so that `since` returns None for all earlier marks."""
        self._models.clear()
        self._noted += 1
        self._gap = self._noted

    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        """See `Changes.since`."""
        oldest = self._noted - len(self._models)
        if mark < max(self._gap, oldest):
            return self._noted, None
        return self._noted, frozenset(list(self._models)[mark - oldest :])
