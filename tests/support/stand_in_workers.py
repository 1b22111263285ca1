"""Replacements for workers of a cluster. A test defines their responses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from service.core.cluster.worker import Worker, WorkerKind
from tests.support.control_plane import HOST_TARGET, ControlPlane

START = datetime(2026, 1, 1, tzinfo=UTC)


class StandIn:
    """A worker that always sends the same response, and records its requests."""

    def __init__(self, status: int, headers: dict[str, str], answer: bytes) -> None:
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                given = {name.lower(): value for name, value in self.headers.items()}
                stand_in.asked.append((self.path, given, body))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"


@contextmanager
def worker(
    api: ControlPlane, pool: str, answer: bytes, status: int = 200, headers: dict[str, str] | None = None, **more: Any
) -> Iterator[StandIn]:
    stand_in = StandIn(status, headers or {}, answer)
    thread = threading.Thread(target=stand_in.server.serve_forever)
    thread.start()
    alike = {"pool": pool, "target": HOST_TARGET, "address": stand_in.address, "capacity": 1}
    api.services.workers.beat(
        Worker(
            f"w{stand_in.address}",
            WorkerKind.INFERENCE,
            "h",
            1,
            **{"started_at": START, "seen_at": START, **alike, **more},
        )
    )
    try:
        yield stand_in
    finally:
        stand_in.server.shutdown()
        stand_in.server.server_close()
        thread.join()
