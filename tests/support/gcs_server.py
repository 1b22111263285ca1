"""A server with the API of Google Cloud Storage. It forwards requests to the S3 server of `s3_server`.

Google's XML API differs from S3 only in the names of headers and in the signatures, which this server converts. The
available emulators do not support that API: fake-gcs-server refuses its uploads, and gcp-storage-emulator refuses its
listings.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from tests.support import s3_server
from tests.support.waiting import WORK_TIMEOUT_S

BUCKET = s3_server.BUCKET
_SAFE = "-_.~"
_PASSED_ON = ("content-type", "range", "if-none-match", "if-match")
_RENAMED = {"x-goog-copy-source": "x-amz-copy-source"}


def environment(port: int, folder: Path) -> dict[str, str]:
    """Returns the environment variables with the address for clients of the bucket.

    They include the path of a service account file, which is written to `folder`. The file disables tokens, as with
    Google's own emulators.
    """
    account = {
        "type": "service_account",
        "gcs_base_url": f"http://127.0.0.1:{port}",
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    file = folder / "service-account.json"
    file.write_text(json.dumps(account))
    return {"GOOGLE_SERVICE_ACCOUNT": str(file), "GOOGLE_ALLOW_HTTP": "true"}


@contextmanager
def server(s3_port: int) -> Iterator[int]:
    """Starts the server in front of the S3 server at `s3_port`. Both have the same bucket. Yields its port."""
    handler = type("Handler", (_Relay,), {"s3_port": s3_port})
    relay = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    relay.daemon_threads = True
    thread = threading.Thread(target=relay.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield relay.server_port
    finally:
        relay.shutdown()
        thread.join()
        relay.server_close()


class _Relay(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    s3_port: int

    def do_GET(self) -> None:
        url, body = urlsplit(self.path), self._body()
        path, query = quote(unquote(url.path), safe=f"/{_SAFE}"), parse_qsl(url.query, keep_blank_values=True)
        headers = {name.lower(): value for name, value in self.headers.items()}
        sent = {name: headers[name] for name in _PASSED_ON if name in headers}
        sent |= {there: headers[here] for here, there in _RENAMED.items() if here in headers}
        if headers.get("x-goog-if-generation-match") == "0":
            sent["if-none-match"] = "*"
        words = "&".join(f"{quote(name, safe=_SAFE)}={quote(value, safe=_SAFE)}" for name, value in sorted(query))
        sent |= _signed(self.command, f"127.0.0.1:{self.s3_port}", path, words, body, sent)
        connection = http.client.HTTPConnection("127.0.0.1", self.s3_port, timeout=WORK_TIMEOUT_S)
        try:
            connection.request(self.command, f"{path}?{words}" if words else path, body, sent)
            answer = connection.getresponse()
            self._answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        body = b""
        while size_bytes := int(self.rfile.readline(), 16):
            body += self.rfile.read(size_bytes)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                self.send_header(name, value)
        length = next((value for name, value in headers.items() if name.lower() == "content-length"), str(len(body)))
        if status != 204:
            self.send_header("content-length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _signed(method: str, host: str, path: str, query: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
    """Returns the headers with AWS's signature, version 4."""
    now = datetime.now(UTC)
    day, digest = now.strftime("%Y%m%d"), hashlib.sha256(body).hexdigest()
    own = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ")}
    every = dict(sorted({**headers, **own}.items()))
    names, scope = ";".join(every), f"{day}/us-east-1/s3/aws4_request"
    headers_text = "".join(f"{name}:{value.strip()}\n" for name, value in every.items())
    request = f"{method}\n{path}\n{query}\n{headers_text}\n{names}\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{own['x-amz-date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    credentials = s3_server.environment(0)
    key = f"AWS4{credentials['AWS_SECRET_ACCESS_KEY']}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    who = f"Credential={credentials['AWS_ACCESS_KEY_ID']}/{scope}"
    return {**own, "authorization": f"AWS4-HMAC-SHA256 {who},SignedHeaders={names},Signature={key.hex()}"}
