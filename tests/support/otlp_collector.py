"""A collector that receives traces as OTLP over HTTP. It decodes them with `opentelemetry-proto`."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.waiting import GIVE_UP_S


@dataclass
class Collected:
    """The spans that the collector has received.

    Attributes:
        endpoint: the address for exporters.
        spans: the spans, in the order of arrival.
        resource: the attributes of the resource that sent them.
    """

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> Span:
        (span,) = self.named(name)
        return span

    def wait(self, count: int) -> None:
        """Waits until `count` spans have arrived. Exporters send them every few seconds."""
        until_s = time.monotonic() + GIVE_UP_S
        while len(self.spans) < count:
            assert time.monotonic() < until_s, [span.name for span in self.spans]
            time.sleep(0.02)


def attributes(span: Span) -> dict[str, str | int]:
    return _values(span.attributes)


@contextmanager
def collector() -> Iterator[Collected]:
    """Starts a collector on a free loopback port, and yields what it receives."""
    collected = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                collected.resource.update({k: str(v) for k, v in _values(group.resource.attributes).items()})
                for scoped in group.scope_spans:
                    collected.spans += scoped.spans
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collected.endpoint = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield collected
        finally:
            server.shutdown()
            thread.join()


def _values(pairs: list[KeyValue]) -> dict[str, str | int]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}
