"""Handles the messages that the data plane sends to the control plane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from service.api.access.key_orders import send_keys
from service.api.data_plane.questions import Questions
from service.api.data_plane.reports import Reports
from service.api.oip.address import parse_address
from service.api.services import Services
from service.workers.data_plane import orders
from service.workers.data_plane.messages import Question, Report, Sample, Trace
from service.workers.data_plane.plane import Answer, Found, PlaneListener

if TYPE_CHECKING:  # imported only if requests are sampled
    from service.workers.sampling import Sampler

_logger = logging.getLogger(__name__)
_LOOK_EVERY_S = 0.5


class Listener(PlaneListener):
    """Answers the data plane's questions, records what it reports, and keeps its configuration up to date.

    Attributes:
        sampler: receives the inputs of sampled requests; None if no request is sampled.
    """

    def __init__(self, services: Services, take: Callable[[int], None]) -> None:
        """
        Args:
            take: called with the file descriptor of each connection that the data plane hands over.
        """
        self._services, self._take = services, take
        self.sampler: Sampler | None = None
        self._questions, self._reports = Questions(services), Reports(services.metrics)

    async def found(self, found: Found) -> None:
        routes = {parse_address(each.model, each.version): each for each in found.routes}
        await self._services.registry.found(found.models, routes)

    def reported(self, report: Report) -> None:
        self._reports.count(report)
        self._services.registry.apply_report(report)
        if self._services.tracing is not None:
            try:
                self._services.tracing.flush()
            except Exception:  # the report comes from a process that runs models' code, so it may contain anything
                _logger.exception("cannot create traces from the data plane's report")
        if self._services.access.count_used(report["used"]):
            send_keys(self._services)

    def traced(self, trace: Trace) -> None:
        if self._services.tracing is not None:
            self._services.tracing.note(trace)

    def sampled(self, sample: Sample, data: bytes) -> None:
        if self.sampler is not None:
            self.sampler.sampled(sample, data)

    def distrusted(self, worker: str, reason: str) -> None:
        if self._services.routing is not None:
            self._services.routing.distrusted(worker, reason)

    def connected(self, descriptor: int) -> None:
        self._take(descriptor)

    async def answer(self, question: Question, data: bytes) -> Answer:
        return await self._questions.answer(question, data)

    def tell(self) -> None:
        """Sends the current limits, readiness, certificate and keys to the data plane."""
        services = self._services
        services.access.changed()  # another process may have changed the file of keys
        unready = "the server is shutting down" if services.stopping.is_set() else services.registry.unready
        services.plane.order(orders.configure(services.settings, unready, services.traced))
        if services.certificate is not None:
            pair = services.certificate.pair()
            services.plane.order(*orders.certificate(pair.cert_pem, pair.key_pem))
        send_keys(services)

    async def keep_telling(self) -> None:
        """Sends changes to the data plane periodically, until canceled."""
        while True:
            try:
                self.tell()
            except Exception:  # a file cannot be read at the moment; the data plane keeps the previous configuration
                _logger.exception("cannot update the data plane's configuration")
            await asyncio.sleep(_LOOK_EVERY_S)
