"""Metrics of the requests that the native front answered. They are counted a little later, off the request path."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from service.api.oip.front.routes import FrontRoutes
from service.api.oip.telemetry import RequestTelemetry
from service.api.oip.timeline import Timeline
from service.api.ops.metrics import Metrics
from service.api.problems import status_of
from service.core.errors import DeadlinePassed, OctetError, QueueFull
from service.native import FRONT_FIELDS, Front, GrpcFront, Problem
from service.workers.inference import Identity, queue_full

_CLIENT_CLOSED_REQUEST = 499
_REFUSALS: dict[int, OctetError] = {status_of(error): error for error in (QueueFull(), DeadlinePassed())}


class FrontRecords:
    """For the event loop's thread."""

    def __init__(
        self,
        front: Front | GrpcFront,
        routes: FrontRoutes,
        metrics: Metrics,
        protocol: str = "rest",
        codes: Mapping[int, str] | None = None,
    ) -> None:
        """
        Args:
            codes: what the protocol calls those of `FRONT_FIELDS`, where it has its own.
        """
        self._front, self._routes, self._codes = front, routes, codes or {}
        self._telemetry = RequestTelemetry(metrics, protocol)

    def count(self) -> None:
        """Counts what was answered since the last time."""
        table, _ = self._front.records()
        for entry, code in np.unique(table[:, :2], axis=0).astype(int).tolist():
            rows = table[(table[:, 0] == entry) & (table[:, 1] == code)]
            if code == _CLIENT_CLOSED_REQUEST:
                self._telemetry.canceled(len(rows))
            elif code in _REFUSALS:
                self._telemetry.rejected(_REFUSALS[code], len(rows))
            times = dict(zip(FRONT_FIELDS, rows.T, strict=True))
            identity = self._routes.address(entry).served.identity
            self._telemetry.all_answered(identity, self._codes.get(code, code), times)
        self._routes.report()

    def refused(self, identity: Identity, problem: Problem, error: Exception, status: int | str) -> None:
        """Counts a request that was answered with an error."""
        timeline = Timeline(status)
        timeline.began_s, timeline.arrived_s = problem.began_s, problem.arrived_s
        timeline.end(status)
        if isinstance(error, OctetError):
            self._telemetry.rejected(error)
        self._telemetry.answered(identity, timeline)


def error_of(problem: Problem) -> Exception:
    """The exception that corresponds to a `problem` of the native front."""
    if problem.kind == "queue_full":
        return queue_full(problem.retry_after_s)
    if problem.kind == "late":
        return DeadlinePassed()
    kind, _, message = problem.message.partition(": ")
    return MemoryError(message) if kind == "MemoryError" else RuntimeError(problem.message)
