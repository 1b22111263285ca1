"""A data plane with a model that stops at a gate until a test opens it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from service.workers.inference import Served
from tests.support.data_plane import DataPlane
from tests.support.gates import Gate
from tests.support.runners import held
from tests.support.tables import Tables
from tests.support.waiting import GIVE_UP_S


class GatedPlane:
    """A data plane with the model `m`, which returns its input `x`, UINT8 `[1, 1]`.

    Attributes:
        gate: the gate at which requests stop. Requests with the value 0 do not stop.
    """

    def __init__(self, settings: dict[str, Any] | None = None, **scheduling: Any) -> None:
        self.gate = Gate()
        tables = Tables()
        tables.model("m", lambda: held(self.gate))
        self.plane = DataPlane(tables, scheduling=scheduling, **(settings or {}))

    async def queued(self, count: int) -> None:
        """Waits until `count` requests are queued for the model."""
        await self._until(lambda served: served.queued == count)

    async def admitted(self, count: int) -> None:
        """Waits until `count` requests are queued or running."""
        await self._until(lambda served: served.admitted == count)

    async def _until(self, holds: Callable[[Served], bool]) -> None:
        deadline_s = monotonic() + GIVE_UP_S
        while True:
            await self.plane.orders.gather()
            if all(map(holds, self.plane.registry.in_memory())):
                return
            assert monotonic() < deadline_s, f"the condition did not become true within {GIVE_UP_S:g} s"
            await asyncio.sleep(0.005)
