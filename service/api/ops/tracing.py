"""Traces of predict requests, for OpenTelemetry: http or rpc → input, queue, batch → run, output.

What a request costs is noted in its `Timeline` anyway; its spans are made of that when it was answered, and sent by a
thread of the SDK. OpenTelemetry is loaded only if traces are configured.

Each trace is whole: of requests that were computed together each has a span `batch` and `run`, with the same times,
and its `batch` is linked to the others. One span for all would be missing in the traces of all but one of them, and in
every one if that one was not sampled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from time import monotonic_ns, time_ns
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service import __version__
from service.api.oip.timeline import Timeline
from service.workers.inference import Identity

_PATIENCE_S = 3.0  # for a collector that does not answer, when the process ends
_W3C = TraceContextTextMapPropagator()
_HEADERS = ("traceparent", "tracestate")


class Tracing:
    """Makes traces, and has them sent."""

    def __init__(self, endpoint: str | None, ratio: float | None) -> None:
        """Starts a thread.

        Args:
            endpoint: of an OTLP/HTTP collector, such as `http://localhost:4318`; None for that of the environment.
            ratio: which part of the requests to trace that do not say it themselves (`traceparent`); None for what
                the environment says, and all if that says nothing.
        """
        exporter = OTLPSpanExporter(endpoint and f"{endpoint.rstrip('/')}/v1/traces")
        resource = Resource.create({"service.name": "octet", "service.version": __version__})
        self._provider = TracerProvider(
            resource=resource.merge(OTELResourceDetector().detect()),  # the environment's name for it wins
            sampler=None if ratio is None else ParentBased(TraceIdRatioBased(ratio)),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("octet", __version__)

    def begin(self, name: str, headers: Iterable[tuple[str, str]], attributes: Mapping[str, Any]) -> Trace | None:
        """The trace of a request that begins now; None if it is not among those that are traced.

        Args:
            headers: of the request; `traceparent` says whose trace it is part of.
        """
        found = {key: value for key, value in headers if key in _HEADERS}
        context = _W3C.extract(found, Context()) if found else Context()
        span = self._tracer.start_span(name, context, SpanKind.SERVER, attributes)
        return Trace(self._tracer, span) if span.is_recording() else None

    def close(self) -> None:
        """Sends what was not sent yet, if the collector takes it."""
        closing = threading.Thread(target=self._provider.shutdown, name="octet-traces", daemon=True)
        closing.start()
        closing.join(_PATIENCE_S)


class Trace:
    """One request's span, and those within."""

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer, self._span = tracer, span
        self._inside = set_span_in_context(span, Context())
        self._epoch_ns = time_ns() - monotonic_ns()

    @property
    def context(self) -> SpanContext:
        """The context that other spans link to."""
        return self._span.get_span_context()

    @property
    def trace_id(self) -> str:
        return format(self.context.trace_id, "032x")

    def describe(self, identity: Identity, timeline: Timeline) -> None:
        """Adds the attributes and child spans of a request that was computed by the model loaded as `identity`."""
        self._span.set_attributes(
            {"octet.model": identity.model, "octet.version": identity.version, "octet.target": identity.target}
        )
        if timeline.prepared_s:
            self._child("input", timeline.arrived_s, timeline.prepared_s)
        if (stages := timeline.stages) is not None:
            called_s = stages.taken_s + stages.batched_s
            self._child("queue", stages.taken_s - stages.queued_s, stages.taken_s)
            links = [Link(trace.context) for trace in stages.batch_tags if trace is not self]
            together = {"octet.batch.requests": stages.requests, "octet.batch.samples": stages.samples}
            batch = self._child("batch", stages.taken_s, called_s + stages.run_s, self._inside, links, together)
            self._child("run", called_s, called_s + stages.run_s, set_span_in_context(batch, Context()))
            if timeline.ended_s:
                self._child("output", timeline.ran_s, timeline.ended_s)

    def end(self, attributes: Mapping[str, Any], has_failed: bool) -> None:
        """It was answered.

        Args:
            has_failed: by the server's fault.
        """
        self._span.set_attributes(attributes)
        if has_failed:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    def _child(
        self,
        name: str,
        began_s: float,
        ended_s: float,
        parent: Context | None = None,
        links: Iterable[Link] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> Span:
        began_ns, ended_ns = (self._epoch_ns + round(1e9 * moment_s) for moment_s in (began_s, ended_s))
        span = self._tracer.start_span(
            name, parent or self._inside, SpanKind.INTERNAL, attributes, list(links), began_ns
        )
        span.end(ended_ns)
        return span
