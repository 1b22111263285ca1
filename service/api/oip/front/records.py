"""Metrics of the requests that the native front answered. They are counted a little later, off the request path."""

from __future__ import annotations

from collections.abc import Mapping

from service.api.oip.front.routes import FrontRoutes
from service.api.oip.telemetry import RequestTelemetry
from service.api.oip.timeline import Timeline
from service.api.ops.metrics import Metrics
from service.api.problems import status_of
from service.core.errors import DeadlinePassed, OctetError, QueueFull
from service.native import FRONT_FIELDS, Front, GrpcFront, Problem
from service.workers.inference import Identity, Stages, queue_full

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
        for row in table.tolist():
            record = dict(zip(FRONT_FIELDS, row, strict=True))
            served = self._routes.address(int(record["entry"])).served
            code = int(record["code"])
            if code == _CLIENT_CLOSED_REQUEST:
                self._telemetry.canceled()
            elif code in _REFUSALS:
                self._telemetry.rejected(_REFUSALS[code])
            self._telemetry.answered(served.identity, _timeline(record, self._codes.get(code, code)))
        self._routes.report()

    def refused(self, identity: Identity, problem: Problem, error: Exception, status: int | str) -> None:
        """Counts a request that was answered with an error."""
        timeline = Timeline(status)
        timeline.began_s, timeline.arrived_s = problem.began_s, problem.arrived_s
        timeline.end(status)
        if isinstance(error, OctetError):
            self._telemetry.rejected(error)
        self._telemetry.answered(identity, timeline)


def _timeline(record: dict[str, float], code: int | str) -> Timeline:
    timeline = Timeline(code)
    timeline.began_s, timeline.arrived_s = record["began_s"], record["arrived_s"]
    timeline.prepared_s, timeline.ran_s, timeline.ended_s = record["prepared_s"], record["ran_s"], record["ended_s"]
    if record["ran_s"]:
        times = (record[name] for name in ("submitted_s", "taken_s", "run_s", "computed_s", "ran_s"))
        timeline.stages = Stages.between(*times, requests=int(record["requests"]), samples=int(record["samples"]))
    return timeline


def error_of(problem: Problem) -> Exception:
    """The exception that corresponds to a `problem` of the native front."""
    if problem.kind == "queue_full":
        return queue_full(problem.retry_after_s)
    if problem.kind == "late":
        return DeadlinePassed()
    kind, _, message = problem.message.partition(": ")
    return MemoryError(message) if kind == "MemoryError" else RuntimeError(problem.message)
