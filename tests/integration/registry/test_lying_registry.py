"""Pulls from a malicious registry: a real server that sends the responses that each test defines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from service.cache import MANIFEST_MEDIA_TYPE, Descriptor, OciLayout
from service.cache.oci import LARGEST_MANIFEST_BYTES
from service.core.digest import digest_of
from service.core.errors import DigestMismatch, InvalidInput, NotFound, OctetError, RegistryFailed
from service.core.settings import PlainHttp, Settings
from service.registry import Registry, client, parse_reference

BLOB = bytes(range(256)) * 4096
OTHER = BLOB[:-1] + b"?"
WANTED = Descriptor("application/octet-stream", digest_of(BLOB), len(BLOB))
CHUNK = bytes(1 << 16)

Answer = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """A request and the requests before it."""

    protocol_version = "HTTP/1.1"
    answer: Answer
    asked: list[tuple[str, dict[str, str]]]  # path and headers

    def do_GET(self) -> None:
        self.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        with suppress(ConnectionError):  # the client has closed the connection
            self.answer(self)
        self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def say(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        """Sends a response. `length` is the length in its header: by default that of `body`, and none if negative."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        size_bytes = len(body) if length is None else length
        if size_bytes >= 0:
            self.send_header("content-length", str(size_bytes))
        self.end_headers()
        self.wfile.write(body)

    def go_on_for_ever(self) -> None:
        while True:
            self.wfile.write(CHUNK)

    @property
    def offset(self) -> int:
        return int(self.headers.get("range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Yields the host and port of a server, and the list of the requests that it has received."""
    requests: list[tuple[str, dict[str, str]]] = []
    handler = type("Handler", (Request,), {"answer": staticmethod(answer), "asked": requests})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PAUSE_S", 0.0)


def registry(host: str, **settings: object) -> Registry:
    return Registry(parse_reference(f"oci://{host}/a/b:c"), Settings(store_timeout_s=30.0, **settings))  # type: ignore[arg-type]


def fetched(host: str, layout: OciLayout, **settings: object) -> bytes:
    """Pulls the blob and returns its content. If that fails, checks that nothing of the blob is stored."""
    with registry(host, **settings) as opened:
        try:
            opened.fetch(WANTED, layout.blobs)
        except OctetError:
            assert list(layout.blobs.iterate()) == []
            assert list((layout.root / "uploads").iterdir()) == []
            raise
    return layout.blobs.read(WANTED.digest)


@pytest.fixture
def layout(tmp_path: Path) -> OciLayout:
    return OciLayout(tmp_path / "layout")


def test_wrong_bytes_of_the_right_size_are_not_stored(layout: OciLayout) -> None:
    with answering(lambda request: request.say(200, OTHER)) as (host, _), pytest.raises(DigestMismatch):
        fetched(host, layout)


@pytest.mark.parametrize("length", [len(BLOB) + 1, -1], ids=["declared", "undeclared"])
def test_more_bytes_than_in_the_manifest_are_rejected(layout: OciLayout, length: int) -> None:
    with answering(lambda request: request.say(200, BLOB + b"!", length)) as (host, requests):
        with pytest.raises(InvalidInput, match="sends more bytes than blob"):
            fetched(host, layout)
        assert len(requests) == 1


def test_missing_bytes_are_requested_again_a_few_times(layout: OciLayout) -> None:
    short = BLOB[:1000]

    def answer(request: Request) -> None:
        if request.offset:
            request.say(206, b"", content_range=f"bytes {request.offset}-{request.offset}/1000")
        else:
            request.say(200, short)

    with answering(answer) as (host, requests):
        with pytest.raises(RegistryFailed, match="was cut off"):
            fetched(host, layout)
        assert [headers.get("range") for _, headers in requests] == [None, *4 * ["bytes=1000-"]]


def test_an_endless_blob_is_cut_off(layout: OciLayout) -> None:
    def answer(request: Request) -> None:
        request.say(200, b"", -1)
        request.go_on_for_ever()

    with answering(answer) as (host, _), pytest.raises(InvalidInput, match="sends more bytes than blob"):
        fetched(host, layout)


@pytest.mark.parametrize("knows_ranges", [True, False])
def test_an_interrupted_blob_is_resumed(layout: OciLayout, knows_ranges: bool) -> None:
    """The pull also succeeds if the registry sends the whole blob again."""
    sent: list[int] = []

    def answer(request: Request) -> None:
        begin = request.offset if knows_ranges else 0
        part = BLOB[begin : begin + 300_000 * (1 + len(sent))]
        sent.append(len(part))
        whole = len(BLOB) - begin
        if begin:
            request.say(206, part, whole, content_range=f"bytes {begin}-{len(BLOB) - 1}/{len(BLOB)}")
        else:
            request.say(200, part, whole)

    with answering(answer) as (host, requests):
        assert fetched(host, layout) == BLOB
        assert len(requests) > 1
        assert requests[0][1].get("range") is None
        assert all(headers["range"].startswith("bytes=") for _, headers in requests[1:])
        if knows_ranges:
            assert sum(sent) == len(BLOB), "no byte was sent twice"


def test_a_wrong_range_is_rejected(layout: OciLayout) -> None:
    def answer(request: Request) -> None:
        if request.offset:
            request.say(206, BLOB[5:], content_range=f"bytes 5-{len(BLOB) - 1}/{len(BLOB)}")
        else:
            request.say(200, BLOB[:1000], len(BLOB))

    with answering(answer) as (host, _), pytest.raises(RegistryFailed, match="another range"):
        fetched(host, layout)


def test_a_redirect_to_another_server_gets_no_password(
    layout: OciLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with answering(lambda request: request.say(200, BLOB)) as (elsewhere, asked_there):
        there = f"http://localhost:{elsewhere.partition(':')[2]}/somewhere?signature=1"

        def answer(request: Request) -> None:
            if "authorization" in request.headers:
                request.say(307, location=there)
            else:
                request.say(401, www_authenticate='Basic realm="x"')

        with answering(answer) as (host, requests):
            user = {"registry_username": "tester", "registry_password": "secret"}
            assert fetched(host, layout, **user) == BLOB
            assert requests[-1][1]["authorization"].startswith("Basic ")
        ((path, headers),) = asked_there
        assert path == "/somewhere?signature=1"
        assert "authorization" not in headers


def test_another_server_that_requests_a_password_gets_none(
    layout: OciLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with answering(lambda request: request.say(401, www_authenticate='Basic realm="x"')) as (elsewhere, asked_there):
        there = f"http://{elsewhere}/somewhere"
        with answering(lambda request: request.say(307, location=there)) as (host, _):
            with pytest.raises(OctetError) as caught:
                fetched(host, layout, registry_username="tester", registry_password="secret")
            assert caught.value.code == "unauthorized"
        assert asked_there
        assert all("authorization" not in headers for _, headers in asked_there)


def test_a_redirect_to_plain_http_on_another_machine_is_not_followed(layout: OciLayout) -> None:
    there = "http://registry.example/blob"
    refused = pytest.raises(InvalidInput, match="which is not encrypted")
    with answering(lambda request: request.say(307, location=there)) as (host, _), refused:
        fetched(host, layout)


def test_a_redirect_loop_ends(layout: OciLayout) -> None:
    with answering(lambda request: request.say(307, location=request.path)) as (host, requests):
        with pytest.raises(RegistryFailed, match="redirects more than"):
            fetched(host, layout, registry_http=PlainHttp.ALWAYS)
        assert len(requests) == 5


@pytest.mark.parametrize("length", [LARGEST_MANIFEST_BYTES + 1, -1], ids=["declared", "undeclared"])
def test_an_endless_manifest_is_cut_off(length: int) -> None:
    def answer(request: Request) -> None:
        request.say(200, b"", length, content_type=MANIFEST_MEDIA_TYPE)
        request.go_on_for_ever()

    refused = pytest.raises(InvalidInput, match="more than 4194304 bytes")
    with answering(answer) as (host, _), registry(host) as opened, refused:
        opened.manifest("c")


def test_a_manifest_with_another_digest_is_rejected() -> None:
    refused = pytest.raises(DigestMismatch, match="sends other bytes")
    answer: Answer = lambda request: request.say(200, b"{}", content_type=MANIFEST_MEDIA_TYPE)  # noqa: E731
    with answering(answer) as (host, _), registry(host) as opened, refused:
        opened.manifest(digest_of(b"a manifest"))


def test_an_endless_list_of_referrers_is_cut_off() -> None:
    def answer(request: Request) -> None:
        request.say(200, b"", -1, content_type="application/vnd.oci.image.index.v1+json")
        request.go_on_for_ever()

    refused = pytest.raises(InvalidInput, match="more than 4194304 bytes")
    with answering(answer) as (host, _), registry(host) as opened, refused:
        opened.referrers(digest_of(b"a manifest"))


def test_a_missing_blob_is_not_requested_again(layout: OciLayout) -> None:
    with answering(lambda request: request.say(404)) as (host, requests):
        with pytest.raises(NotFound):
            fetched(host, layout)
        assert len(requests) == 1
