"""The model_repository extension: lists the models, and loads and unloads them on request.

A prediction loads its model if needed, so a load is optional. A load that follows a failed one tries again at once. A
load also reverts an unload. An unload frees the memory. This server then refuses requests until the model is loaded
again or the server restarts. The API of a cluster forwards a load to all workers that can serve the model, and an
unload to all workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from service.api.access import AuditLog
from service.api.access.tenants import is_visible, qualified, short_name, shorten_names
from service.api.oip.members import flag
from service.core.errors import Unsupported
from service.workers.inference import ModelState, Registry
from service.workers.routing import Routing

Members = dict[str, Any]


class Repository:
    """Implements the extension for all protocols.

    Args:
        routing: the routing of a cluster's API, whose workers have the models in memory; otherwise None.
    """

    def __init__(self, registry: Registry, audit: AuditLog, routing: Routing | None = None) -> None:
        self._registry, self._audit, self._routing = registry, audit, routing

    async def index(self, ready: bool) -> list[Members]:
        """Returns every version of every model, or only those that are ready."""
        return [
            {
                "name": short_name(each.model),
                "version": str(each.version),
                "state": each.state.value,
                "reason": shorten_names(each.reason),
            }
            for each in await (self._routing or self._registry).index()
            if is_visible(each.model) and (each.state is ModelState.READY or not ready)
        ]

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Loads a model. Raises `Unsupported` if the parameters would change the model. Triton allows such changes."""
        for parameter in parameters:
            if parameter == "config" or parameter.startswith("file:"):
                raise Unsupported(
                    f"a load has no parameter {parameter!r}: it cannot change a model",
                    hint="push the changed model as a new version",
                )
        model = qualified(name)
        await (self._routing or self._registry).load(model)
        await asyncio.to_thread(self._audit.note, "load", model=model)

    async def unload(self, name: str, parameters: Mapping[str, Any]) -> None:
        flag(parameters, "unload_dependents", False)  # only checked, because no model has dependents
        model = qualified(name)
        await (self._routing or self._registry).unload(model)
        await asyncio.to_thread(self._audit.note, "unload", model=model)
