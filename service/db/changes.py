"""Which models have changed, without reading their rows over and over.

A server looks at the tables for each name that it answers for. Where nothing has changed there is nothing to look at: a
thousand servers of a hundred models each would ask half a million questions a second about it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Protocol

CHANNEL = "octet_models"  # PostgreSQL's triggers notify it: migrations/versions
_REMEMBERED = 10_000


class Changes(Protocol):
    """Changes of versions, aliases and succeeded builds, by whatever process made them.

    A process may miss one, as where a pooler of connections swallows notifications: what matters is looked at now and
    then in any case.
    """

    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        """A mark to ask with the next time, and the models that have changed since `mark`; None: any may have.

        Blocks for about as long as a query. The first mark is -1.
        """


class Journal:
    """The last changes, numbered. Not for several threads at a time."""

    def __init__(self) -> None:
        self._models: deque[str] = deque(maxlen=_REMEMBERED)
        self._noted = 0
        self._gap = 0  # the number of the last change of which it is not known what it was

    def note(self, model: str) -> None:
        self._models.append(model)
        self._noted += 1

    def note_gap(self) -> None:
        """From here on nothing is known of what was before."""
        self._models.clear()
        self._noted += 1
        self._gap = self._noted

    def since(self, mark: int) -> tuple[int, Collection[str] | None]:
        """As `Changes`."""
        oldest = self._noted - len(self._models)
        if mark < max(self._gap, oldest):
            return self._noted, None
        return self._noted, frozenset(list(self._models)[mark - oldest :])
