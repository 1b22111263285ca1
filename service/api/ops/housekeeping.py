"""What the control plane looks after beside its requests: builds that nobody has begun, garbage, and its heap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from service.api.services import Services
from service.core.heap import trim
from service.core.outage import log_trouble
from service.db import Watch
from service.workers.garbage import Collector

_logger = logging.getLogger(__name__)
_EVERY_S, _TROUBLE_S = 0.2, 2.0
_TRIM_EVERY_S = 60.0


class Housekeeping:
    """For one event loop, on threads beside it."""

    def __init__(self, services: Services, want_compiler: Callable[[], None]) -> None:
        """
        Args:
            want_compiler: called on and on while a build waits, for a worker that is on its way, or busy.
        """
        self._builds, self._lease_s = services.builds, services.settings.lease_s
        self._want_compiler = want_compiler
        self._watch = Watch(services.builds.bell)
        self._is_wanted = False
        self._trimmed_s = monotonic()
        self._garbage = Collector(
            services.layout, services.builds, services.models, services.crashes, services.verifications
        )

    async def keep(self) -> None:
        """Looks, until canceled."""
        while True:
            try:
                await asyncio.to_thread(self._look)
                await asyncio.sleep(_EVERY_S)
            except Exception as error:  # the database is gone or the disk is full: that may pass
                log_trouble(_logger, error, "builds and garbage could not be looked at")
                await asyncio.sleep(_TROUBLE_S)

    def _look(self) -> None:
        if self._watch.is_due():
            self._is_wanted = self._builds.any_to_claim(self._lease_s)
        if self._is_wanted:
            self._want_compiler()
        self._garbage.collect_if_due()
        if monotonic() - self._trimmed_s > _TRIM_EVERY_S:
            trim()
            self._trimmed_s = monotonic()
