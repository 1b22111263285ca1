"""Decides which of the served names must be resolved again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Iterable

from service.workers.inference.ports import Changes
from service.workers.inference.routes import Name

_SWEEP_S = 300.0  # every name is resolved again after this time, because a change notification may be lost


class Following:
    """Reads which models have changed, instead of resolving every name again. For one event loop.

    Args:
        changes: reports the changed models. None if changes are not reported; every name is then resolved again each
            time.
    """

    def __init__(self, changes: Changes | None) -> None:
        self._changes, self._mark = changes, -1
        self._unresolved: set[Name] = set()
        # names that are being loaded, and whose tables have changed since they were read
        self._outdated: set[Name] = set()
        self._stale: set[Name] = set()  # names that are being loaded, and whose result must not be used
        self._swept_s = -math.inf

    def mark_resolved(self, name: Name) -> None:
        """Marks the name as resolved: its route agrees with the tables as they were at the last `mark_unresolved`.

        Does nothing if the tables have changed since then.
        """
        if name not in self._outdated:
            self._unresolved.discard(name)

    def mark_unresolved(self, name: Name) -> None:
        """Marks the name as unresolved, so that it stays due even if the tables do not change."""
        self._unresolved.add(name)
        self._outdated.discard(name)
        self._stale.discard(name)

    def mark_stale(self, names: Iterable[Name]) -> None:
        """Marks the data that were read from the tables for these names as stale, so that the results are not used."""
        self._stale.update(names)

    def is_stale(self, name: Name) -> bool:
        """Returns true if `mark_stale` was called for the name since the last `mark_unresolved`."""
        return name in self._stale

    def mark_all_due(self) -> None:
        """Makes all names due, because the set of usable artifacts on this machine has changed."""
        self._swept_s = -math.inf

    async def due(self, names: Collection[Name], looked_for: Iterable[Name]) -> list[Name]:
        """Returns the names that must be resolved again now.

        Args:
            names: the names that are served.
            looked_for: the names that are being resolved or loaded. Like `names`, this argument is iterated after the
                changes were read.
        """
        began_s = time.monotonic()
        changed = await self._read_changes()
        under_way = set(looked_for)
        self._unresolved &= under_way.union(names)
        self._outdated &= under_way
        self._stale &= under_way
        if changed is None or began_s - self._swept_s > _SWEEP_S:
            self._swept_s = began_s
            self._outdated |= under_way
            return list(names)
        self._outdated |= {name for name in under_way if name[0] in changed}
        return [name for name in names if name[0] in changed or name in self._unresolved]

    async def _read_changes(self) -> Collection[str] | None:
        if self._changes is None:
            return None
        self._mark, changed = await asyncio.to_thread(self._changes.since, self._mark)
        return changed
