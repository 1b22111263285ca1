"""The Python side that every native front needs: its routes, its records, and whether API keys are required."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from service.api.oip.front.records import FrontRecords
from service.api.oip.front.routes import FrontRoutes, Wire
from service.api.oip.request_templates import ModelTemplates
from service.api.services import Services
from service.native import Front, GrpcFront

_COUNT_EVERY_S = 0.5


class FrontSupport:
    """Keeps the routes of a front and counts its answers. For the event loop's thread.

    Attributes:
        routes: which requests it answers.
        records: what it has answered.
    """

    def __init__(
        self,
        front: Front | GrpcFront,
        wire: Wire,
        templates: ModelTemplates,
        services: Services,
        protocol: str,
        codes: Mapping[int, str] | None = None,
    ) -> None:
        """From now on, until `end`.

        Args:
            templates: see `FrontRoutes`.
            protocol: and `codes`: see `FrontRecords`.
        """
        self.routes = FrontRoutes(front, wire, templates)
        self.records = FrontRecords(front, self.routes, services.metrics, protocol, codes)
        self._access = services.access
        services.metrics.sources.append(self.records.count)
        services.registry.watch(self.routes.change)
        self._look_at_keys()
        self._counting = asyncio.create_task(self._count())

    def end(self) -> None:
        self._counting.cancel()
        self.records.count()

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(_COUNT_EVERY_S)
            self.records.count()
            self._look_at_keys()

    def _look_at_keys(self) -> None:
        """Sends every request to Python while API keys are required."""
        self.routes.open(not self._access.look())
