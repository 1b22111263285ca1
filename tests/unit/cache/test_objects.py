"""Tests of what S3-compatible servers answer that Amazon's S3 does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from service.cache.objects import ObjectBucket
from service.core.errors import StoreUnreachable


@contextmanager
def accepting_server(stored: bool) -> Iterator[int]:
    """Runs a server that accepts each object without an ETag, like OpenStack Swift if two clients write one object at
    the same time. Yields its port.

    Args:
        stored: whether the server has the object afterwards.
    """

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._respond(202, {"Content-Length": "0"})

        def do_HEAD(self) -> None:
            found = {"Content-Length": "4", "ETag": '"x"', "Last-Modified": "Sat, 28 Nov 2026 04:00:00 GMT"}
            self._respond(200 if stored else 404, found if stored else {"Content-Length": "0"})

        def _respond(self, status: int, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("stored", [True, False])
def test_an_object_that_was_accepted_without_an_etag_is_stored(stored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with accepting_server(stored) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        for name, value in {
            "ALLOW_HTTP": "true",
            "ACCESS_KEY_ID": "a",
            "SECRET_ACCESS_KEY": "b",
            "REGION": "r",
        }.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        bucket = ObjectBucket("s3://bucket/prefix", timeout_s=5)
        if stored:
            bucket.put("name", b"1234")
        else:
            with pytest.raises(StoreUnreachable, match="ETag"):
                bucket.put("name", b"1234")
