"""Traces of predict requests for OpenTelemetry: http or rpc → input, queue, batch → run, output.

The data plane reports the times of each phase of a traced request. Spans are created from these times afterwards, and
sent by a thread of the SDK. OpenTelemetry is imported only if traces are configured.

Each trace is complete. If requests were computed together, each has its own spans `batch` and `run` with the same
times, and its `batch` span links to the `batch` spans of the other requests. A single shared span would belong to the
trace of one request. It would be missing from all other traces, and from every trace if that request was not sampled.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from time import monotonic_ns, time_ns
from typing import Any, Literal

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from service import __version__
from service.workers.data_plane.messages import GRPC_CODES, Trace

_PATIENCE_S = 3.0  # how long to wait for an unresponsive collector when the process ends
_W3C = TraceContextTextMapPropagator()
_HEADERS: tuple[Literal["traceparent", "tracestate"], ...] = ("traceparent", "tracestate")
_FAILED = {"INTERNAL", "UNKNOWN", "DATA_LOSS", "UNAVAILABLE", "DEADLINE_EXCEEDED", "UNIMPLEMENTED"}  # server errors
Members = dict[str, Any]


class Tracing:
    """Creates traces and sends them. For the event loop's thread.

    Attributes:
        ratio: the fraction of requests to trace, among those whose `traceparent` header does not decide it.
    """

    def __init__(self, endpoint: str | None, ratio: float | None) -> None:
        """Starts the SDK's thread.

        Args:
            endpoint: the URL of an OTLP/HTTP collector, such as `http://localhost:4318`. None means the URL in
                OpenTelemetry's environment variables.
            ratio: the fraction of requests to trace. None means the fraction in the environment variables, or all
                requests if these variables set none.
        """
        exporter = OTLPSpanExporter(endpoint and f"{endpoint.rstrip('/')}/v1/traces")
        resource = Resource.create({"service.name": "octet", "service.version": __version__})
        self.ratio = 1.0 if ratio is None else ratio
        self._provider = TracerProvider(
            resource=resource.merge(
                OTELResourceDetector().detect()
            ),  # a service name in the environment takes precedence
            sampler=None if ratio is None else ALWAYS_ON,  # the data plane reports only the sampled requests
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("octet", __version__)
        self._noted: list[Trace] = []

    def note(self, trace: Trace) -> None:
        """Records the data plane's report on a request, for the next `flush`."""
        self._noted.append(trace)

    def flush(self) -> None:
        """Creates spans from the recorded reports. Links requests that were computed together, if both are in this
        flush.
        """
        noted, self._noted = self._noted, []
        epoch_ns = time_ns() - monotonic_ns()
        began = [(trace, span) for trace in noted if (span := self._begin(trace, epoch_ns)).is_recording()]
        together: defaultdict[tuple[int, int], list[Span]] = defaultdict(list)
        for trace, span in began:
            if "call" in trace:
                together[trace["key"], trace["call"]].append(span)
        for trace, span in began:
            same_call = together[trace["key"], trace["call"]] if "call" in trace else []
            _Spans(self._tracer, span, epoch_ns).end(trace, [each for each in same_call if each is not span])

    def close(self) -> None:
        """Sends the remaining traces, if the collector accepts them in time."""
        self.flush()
        closing = threading.Thread(target=self._provider.shutdown, name="octet-traces", daemon=True)
        closing.start()
        closing.join(_PATIENCE_S)

    def _begin(self, trace: Trace, epoch_ns: int) -> Span:
        found = {key: trace[key] for key in _HEADERS if trace[key]}
        context = _W3C.extract(found, Context()) if found else Context()
        name, attributes = _described(trace)
        began_s = trace.get("began_s") or trace["now_s"]
        return self._tracer.start_span(
            name, context, SpanKind.SERVER, attributes, start_time=epoch_ns + round(1e9 * began_s)
        )


class _Spans:
    """The spans of one request."""

    def __init__(self, tracer: Any, span: Span, epoch_ns: int) -> None:
        self._tracer, self._span, self._epoch_ns = tracer, span, epoch_ns
        self._inside = set_span_in_context(span, Context())

    def end(self, trace: Trace, same_call: Iterable[Span]) -> None:
        if trace.get("prepared_s"):
            self._child("input", trace["arrived_s"], trace["prepared_s"])
        if "call" in trace:
            taken_s, ended_s = trace["taken_s"], trace["computed_s"]
            called_s = ended_s - trace["run_s"]
            self._child("queue", trace["submitted_s"], taken_s)
            links = [Link(other.get_span_context()) for other in same_call]
            counts = {"octet.batch.requests": trace["requests"], "octet.batch.samples": trace["samples"]}
            batch = self._child("batch", taken_s, ended_s, self._inside, links, counts)
            self._child("run", called_s, ended_s, set_span_in_context(batch, Context()))
            if trace.get("ended_s"):
                self._child("output", trace["ran_s"], trace["ended_s"])
        if _has_failed(trace):
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end(self._ns(trace.get("ended_s") or trace["now_s"]))

    def _child(
        self,
        name: str,
        began_s: float,
        ended_s: float,
        parent: Context | None = None,
        links: Iterable[Link] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> Span:
        span: Span = self._tracer.start_span(
            name, parent or self._inside, SpanKind.INTERNAL, attributes, list(links), self._ns(began_s)
        )
        span.end(self._ns(ended_s))
        return span

    def _ns(self, moment_s: float) -> int:
        return self._epoch_ns + round(1e9 * moment_s)


def _described(trace: Trace) -> tuple[str, Members]:
    """Returns the name and the attributes of a request's span, following OpenTelemetry's conventions."""
    attributes: Members = {"octet.request_id": trace["request_id"]}
    if "model" in trace:
        attributes |= {
            "octet.model": trace["model"],
            "octet.version": int(trace["version"]),
            "octet.target": trace["target"],
        }
    if trace["protocol"] == "grpc":
        service, _, method = trace["path"].lstrip("/").partition("/")
        attributes |= {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        attributes["rpc.grpc.status_code"] = GRPC_CODES.index(trace["code"])
        return f"{service}/{method}", attributes
    attributes |= {"http.request.method": "POST", "http.route": trace["route"], "url.path": trace["path"]}
    attributes |= {"url.scheme": trace["scheme"], "http.response.status_code": int(trace["code"])}
    return f"POST {trace['route']}", attributes


def _has_failed(trace: Trace) -> bool:
    return trace["code"] in _FAILED if trace["protocol"] == "grpc" else int(trace["code"]) >= 500
