"""The model_repository extension: which models there are, and loading and unloading them by hand.

A load is not needed before a prediction, which loads what it needs; it tries again at once what failed before, and
takes back an unload. An unload frees the memory and has requests refused, in this server, until a load or its end.
The API of a cluster has its workers do so: a load goes to all that can serve the model, an unload to all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from service.api.access import AuditLog
from service.api.access.tenants import is_own, qualified, told, told_text
from service.api.oip.members import flag
from service.core.errors import Unsupported
from service.workers.inference import ModelState, Registry
from service.workers.routing import Routing

Members = dict[str, Any]


class Repository:
    """What the extension can do, whichever protocol asks.

    Args:
        routing: of the API of a cluster, whose workers have the models in memory; else None.
    """

    def __init__(self, registry: Registry, audit: AuditLog, routing: Routing | None = None) -> None:
        self._registry, self._audit, self._routing = registry, audit, routing

    async def index(self, ready: bool) -> list[Members]:
        """Every version of every model; or those that are ready."""
        return [
            {
                "name": told(each.model),
                "version": str(each.version),
                "state": each.state.value,
                "reason": told_text(each.reason),
            }
            for each in await (self._routing or self._registry).index()
            if is_own(each.model) and (each.state is ModelState.READY or not ready)
        ]

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Raises `Unsupported` where a load is asked to change the model, as Triton's may: here that is a push."""
        for parameter in parameters:
            if parameter == "config" or parameter.startswith("file:"):
                raise Unsupported(
                    f"a load takes no parameter {parameter!r}: a model is what was pushed",
                    hint="push the changed model as a new version",
                )
        model = qualified(name)
        await (self._routing or self._registry).load(model)
        await asyncio.to_thread(self._audit.note, "load", model=model)

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> None:
        flag(parameters, "unload_dependents", False)  # there are none
        model = qualified(name)
        await (self._routing or self._registry).unload(model)
        await asyncio.to_thread(self._audit.note, "unload", model=model)
