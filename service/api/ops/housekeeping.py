"""Periodic tasks of the control plane: starts a compiler for queued builds, collects garbage, deletes old jobs,
and trims the heap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from service.api.services import Services
from service.core.system.heap import trim
from service.core.system.outage import log_trouble
from service.db import Watch
from service.workers.garbage import Collector

_logger = logging.getLogger(__name__)
_EVERY_S, _TROUBLE_S = 0.2, 2.0
_CLEAN_EVERY_S = 60.0


class Housekeeping:
    """Runs the periodic tasks. The event loop only waits; the tasks run in other threads."""

    def __init__(self, services: Services, want_compiler: Callable[[], None]) -> None:
        """
        Args:
            want_compiler: called repeatedly while a build waits, even while a compiler is starting or busy.
        """
        self._builds, self._lease_s = services.builds, services.settings.lease_s
        self._want_compiler = want_compiler
        self._jobs = services.jobs
        self._watch = Watch(services.builds.notifications)
        self._is_wanted = False
        self._cleaned_s = monotonic()
        self._garbage = Collector(
            services.layout, services.builds, services.models, services.crashes, services.verifications
        )

    async def keep(self) -> None:
        """Runs the tasks until canceled."""
        while True:
            try:
                await asyncio.to_thread(self._look)
                await asyncio.sleep(_EVERY_S)
            except Exception as error:  # the database is unreachable or the disk is full, perhaps only for a while
                log_trouble(_logger, error, "cannot check for queued builds and garbage")
                await asyncio.sleep(_TROUBLE_S)

    def _look(self) -> None:
        if self._watch.is_due():
            self._is_wanted = self._builds.any_to_claim(self._lease_s)
        if self._is_wanted:
            self._want_compiler()
        self._garbage.collect_if_due()
        if monotonic() - self._cleaned_s > _CLEAN_EVERY_S:
            trim()
            self._jobs.clean_up()
            self._cleaned_s = monotonic()
