"""Tests of an API's requests to a worker, other than predictions, over TLS."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from service.core.cluster.worker import Worker, WorkerKind
from service.core.errors import NotReady
from service.workers.routing.asking import KEY_HEADER, post
from service.workers.routing.security import Security
from tests.support.certificates import Authority, Files

NAME = "workers.example"


class Echo(BaseHTTPRequestHandler):
    """Responds with the body and the key of the request."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])) + self.headers[KEY_HEADER].encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served(files: Files | None) -> Iterator[Worker]:
    server = HTTPServer(("127.0.0.1", 0), Echo)
    scheme = ""
    if files is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*files)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that rejects the certificate
        scheme = "https://"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    now, address = datetime.now(UTC), f"{scheme}127.0.0.1:{server.server_port}"
    try:
        yield Worker("w", WorkerKind.INFERENCE, "h", 1, "x86-64-v3", now, now, pool="p", address=address)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize(("name", "certified"), [(NAME, NAME), (None, "127.0.0.1")])
def test_a_worker_with_tls_gets_requests(authority: Authority, name: str | None, certified: str) -> None:
    with served(authority.server(certified)) as worker:
        answer = post(worker, "/x", {}, b"body ", Security("a key", authority.file, name), 100)
        assert (answer.status, answer.body) == (200, b"body a key")


@pytest.mark.parametrize(("wrong", "why"), [("name", "mismatch"), ("time", "expired"), ("authority", "unable to get")])
def test_a_worker_without_a_valid_certificate_gets_none(
    authority: Authority, tmp_path: Path, wrong: str, why: str
) -> None:
    files = {
        "name": authority.server("another.example"),
        "time": authority.server(NAME, lasts=timedelta(hours=-1)),
        "authority": Authority(tmp_path, "another").server(NAME),
    }[wrong]
    with served(files) as worker, pytest.raises(NotReady, match=why):
        post(worker, "/x", {}, b"", Security("a key", authority.file, NAME), 100)


def test_a_worker_in_plain_text_gets_none_if_tls_is_required(authority: Authority) -> None:
    with served(None) as worker:
        assert post(worker, "/x", {}, b"", Security("a key"), 100).body == b"a key"
        with pytest.raises(NotReady, match="plain text"):
            post(worker, "/x", {}, b"", Security("a key", authority.file), 100)


def test_a_worker_with_tls_gets_none_if_no_authority_is_configured(authority: Authority) -> None:
    with served(authority.server("127.0.0.1")) as worker, pytest.raises(NotReady, match="no cluster_ca"):
        post(worker, "/x", {}, b"", Security("a key"), 100)
