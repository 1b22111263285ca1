"""Tests of the client of registries, with a server on this machine that stores what is pushed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from service.cache import MANIFEST_MEDIA_TYPE
from service.core.digest import digest_of
from service.core.errors import Forbidden, InvalidInput, NotFound, RegistryFailed, TooLarge
from service.core.settings import PlainHttp, Settings
from service.registry import Registry, client, parse_reference
from service.registry.client import entries_of, fallback_tag

DIGEST = digest_of(b"{}")
BLOB = bytes(range(200))


class Store:
    """The contents of the server, the requests that it has received, and the faults of its next responses."""

    def __init__(self) -> None:
        self.manifests: dict[str, bytes] = {}
        self.blobs: dict[str, bytes] = {}
        self.upload = b""
        self.requests: list[str] = []
        self.statuses: list[int] = []  # of the next responses, instead of the right ones
        self.cuts: list[int] = []  # after how many bytes the next pieces are cut off


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def respond(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def handle_request(self) -> None:
        store, (path, _, query) = self.store, self.path.partition("?")
        store.requests.append(f"{self.command} {path}")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if store.statuses:
            self.respond(store.statuses.pop(0), retry_after="0")
            return
        kind, name = path.split("/")[-2:]
        kept = store.manifests if kind == "manifests" else store.blobs
        match self.command:
            case "POST":
                self.respond(202, location="/v2/a/blobs/uploads/1")
            case "PATCH" if store.cuts:
                store.upload += body[: store.cuts.pop(0)]
                self.close_connection = True
            case "PATCH":
                store.upload += body
                self.respond(202, location=path)
            case "PUT" if kind == "uploads":
                store.blobs[query.removeprefix("digest=").replace("%3A", ":")] = store.upload + body
                self.respond(201)
            case "PUT":
                kept[name] = body
                self.respond(201)
            case "GET" if kind == "uploads":
                self.respond(204, location=path, range=f"0-{len(store.upload) - 1}")
            case _ if name in kept:
                self.respond(200, kept[name], content_type=MANIFEST_MEDIA_TYPE)
            case _:
                self.respond(404)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = handle_request

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def store() -> Store:
    return Store()


@contextmanager
def served(store: Store) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"store": store}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def registry(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(client, "_PAUSE_S", 0.0)
    settings = Settings(data_dir=tmp_path, registry_http=PlainHttp.LOOPBACK)
    with served(store) as host, Registry(parse_reference(f"oci://{host}/a:1"), settings, writes=True) as opened:
        yield opened


def test_a_manifest_is_pushed_and_pulled(registry: Registry) -> None:
    assert not registry.has_manifest(DIGEST)
    assert not registry.put_manifest(DIGEST, MANIFEST_MEDIA_TYPE, b"{}")
    assert registry.has_manifest(DIGEST)
    assert registry.manifest(DIGEST) == (MANIFEST_MEDIA_TYPE, b"{}")


def test_a_stored_blob_is_not_sent_again(registry: Registry, store: Store) -> None:
    registry.put_blob(digest_of(BLOB), BLOB)
    registry.put_blob(digest_of(BLOB), BLOB)
    assert store.blobs == {digest_of(BLOB): BLOB}
    assert sum(request.startswith("POST") for request in store.requests) == 1


@pytest.mark.parametrize("cuts", [[], [0], [30], [64, 5, 0]], ids=str)
def test_a_large_blob_is_sent_in_pieces_from_where_the_connection_broke(
    cuts: list[int], registry: Registry, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_PIECE_BYTES", 64)
    store.cuts = cuts
    file = tmp_path / "blob"
    file.write_bytes(BLOB)
    registry.put_blob(digest_of(BLOB), file)
    assert store.blobs == {digest_of(BLOB): BLOB}


def test_requests_to_a_busy_registry_are_repeated(registry: Registry, store: Store) -> None:
    store.manifests[DIGEST] = b"{}"
    store.statuses = [429, 503]
    assert registry.manifest(DIGEST)[1] == b"{}"
    assert len(store.requests) == 3


@pytest.mark.parametrize(
    ("status", "error"), [(403, Forbidden), (404, NotFound), (413, TooLarge), (418, RegistryFailed)]
)
def test_a_status_becomes_an_error_that_names_the_repository(
    status: int, error: type[Exception], registry: Registry, store: Store
) -> None:
    store.statuses = [status]
    with pytest.raises(error, match=registry.reference.host):
        registry.put_manifest("1", MANIFEST_MEDIA_TYPE, b"{}")


def test_a_denial_without_a_challenge_is_invalid(registry: Registry, store: Store) -> None:
    store.statuses = [401]
    with pytest.raises(InvalidInput, match="only Bearer and Basic are supported"):
        registry.manifest("1")


def test_referrers_are_found_by_the_fallback_tag(registry: Registry, store: Store) -> None:
    entry = {"mediaType": MANIFEST_MEDIA_TYPE, "digest": DIGEST, "size": 2}
    assert registry.referrers(DIGEST) == []
    store.manifests[fallback_tag(DIGEST)] = json.dumps({"manifests": [entry]}).encode()
    assert [each.digest for each in registry.referrers(DIGEST)] == [DIGEST]


@pytest.mark.parametrize("index", [b"", b"[]", b"{}", b'{"manifests": [1]}', b"[" * 100_000])
def test_a_list_that_is_not_an_index_is_invalid(index: bytes) -> None:
    with pytest.raises(InvalidInput):
        entries_of(index)
