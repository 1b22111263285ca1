"""Which of the names that are answered for are to be looked at again."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Iterable

from service.workers.inference.ports import Changes
from service.workers.inference.routes import Name

_SWEEP_S = 300.0  # after which every name has been looked at: news may be lost on the way


class Following:
    """Looks for changes rather than at each name. For one event loop.

    Args:
        changes: None where nobody tells of any: every name is always due.
    """

    def __init__(self, changes: Changes | None) -> None:
        self._changes, self._mark = changes, -1
        self._unsettled: set[Name] = set()
        self._outdated: set[Name] = set()  # what is being loaded for them is not what the tables say by now
        self._overtaken: set[Name] = set()  # nor is it to answer
        self._swept_s = -math.inf

    def settle(self, name: Name) -> None:
        """It stands for what the tables said at the last `unsettle`: for good, if they have said nothing else since."""
        if name not in self._outdated:
            self._unsettled.discard(name)

    def unsettle(self, name: Name) -> None:
        """It does not, for a reason that may pass without any change of the tables."""
        self._unsettled.add(name)
        self._outdated.discard(name)
        self._overtaken.discard(name)

    def overtake(self, names: Iterable[Name]) -> None:
        """What was read of the tables for them is so no more, and shall not be what answers from now on."""
        self._overtaken.update(names)

    def is_overtaken(self, name: Name) -> bool:
        """Whether it was, since the last `unsettle`."""
        return name in self._overtaken

    def doubt(self) -> None:
        """What is usable here has changed, and so may what any name stands for."""
        self._swept_s = -math.inf

    async def due(self, names: Collection[Name], looked_for: Iterable[Name]) -> list[Name]:
        """Those that are to be looked at now.

        Args:
            names: that are answered for.
            looked_for: those for which tables are read, or models loaded, right now; as `names`, it is read at the end.
        """
        began_s = time.monotonic()
        changed = await self._changed()
        under_way = set(looked_for)
        self._unsettled &= under_way.union(names)
        self._outdated &= under_way
        self._overtaken &= under_way
        if changed is None or began_s - self._swept_s > _SWEEP_S:
            self._swept_s = began_s
            self._outdated |= under_way
            return list(names)
        self._outdated |= {name for name in under_way if name[0] in changed}
        return [name for name in names if name[0] in changed or name in self._unsettled]

    async def _changed(self) -> Collection[str] | None:
        if self._changes is None:
            return None
        self._mark, changed = await asyncio.to_thread(self._changes.since, self._mark)
        return changed
