"""Tests of failed pulls and the files that they leave: with no registry running, and with an empty registry."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from service.cache import OciLayout
from service.cli.registry import pull_to
from service.core.errors import NotFound, RegistryFailed
from service.core.settings import Settings
from service.registry import parse_reference


@pytest.fixture
def nobody() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"oci://127.0.0.1:{port}/models/digits:1"


@pytest.fixture
def empty() -> Iterator[str]:
    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"oci://127.0.0.1:{server.server_port}/models/digits:1"
        server.shutdown()


def test_a_pull_from_an_unreachable_registry_leaves_no_files(tmp_path: Path, nobody: str) -> None:
    with pytest.raises(RegistryFailed):
        pull_to(parse_reference(nobody), tmp_path / "digits", Settings())
    assert list(tmp_path.iterdir()) == []


def test_a_pull_of_a_missing_artifact_leaves_no_files(tmp_path: Path, empty: str) -> None:
    OciLayout(tmp_path / "digits.partial").blobs.put_bytes(b"of an earlier pull")
    with pytest.raises(NotFound):
        pull_to(parse_reference(empty), tmp_path / "digits", Settings())
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_pull_keeps_the_received_part_and_names_it(tmp_path: Path, nobody: str) -> None:
    partial = tmp_path / "digits.partial"
    digest = OciLayout(partial).blobs.put_bytes(b"arrived")
    with pytest.raises(RegistryFailed) as raised:
        pull_to(parse_reference(nobody), tmp_path / "digits", Settings())
    assert OciLayout.open(partial).blobs.read(digest) == b"arrived"
    assert f"continue from {partial}" in (raised.value.hint or "")


def test_a_damaged_part_of_an_earlier_pull_is_fetched_again(tmp_path: Path, nobody: str) -> None:
    OciLayout(tmp_path / "digits.partial")
    (tmp_path / "digits.partial" / "index.json").write_text("{")
    with pytest.raises(RegistryFailed):  # the registry cannot be reached; the damaged index is not the error
        pull_to(parse_reference(nobody), tmp_path / "digits", Settings())
    assert list(tmp_path.iterdir()) == []
