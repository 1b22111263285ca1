"""Tests of the client with responses that a normal test server does not send: errors, other servers, lost
connections.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from service.cli.client import Client, ServerUnreachable, UnexpectedAnswer
from service.core.digest import digest_of
from service.core.errors import InvalidInput, NotFound, UnknownTarget

Handler = Callable[[httpx.Request], httpx.Response]


def test_a_problem_document_is_raised_as_the_original_error() -> None:
    problem = {"code": "unknown_target", "detail": "unknown target 'vax'", "hint": "use host", "status": 422}
    with _client(lambda request: httpx.Response(422, json=problem)) as client, pytest.raises(UnknownTarget) as caught:
        client.models()
    assert (caught.value.message, caught.value.hint) == ("unknown target 'vax'", "use host")


def test_a_problem_of_an_unknown_kind_keeps_its_message() -> None:
    problem = {"code": "of_a_later_release", "detail": "it failed", "status": 500}
    with (
        _client(lambda request: httpx.Response(500, json=problem)) as client,
        pytest.raises(UnexpectedAnswer) as caught,
    ):
        client.models()
    assert caught.value.message == "it failed"


@pytest.mark.parametrize("body", ["<html>nginx</html>", "[]", '{"message": "no"}', '"no"'])
def test_an_error_page_of_another_server_is_quoted(body: str) -> None:
    with _client(lambda request: httpx.Response(502, text=body)) as client, pytest.raises(UnexpectedAnswer) as caught:
        client.models()
    assert "502" in caught.value.message
    assert body in caught.value.message.replace("\\", "")


def test_an_unreachable_server_is_named_with_a_hint() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening, so that no other process can use the port
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(address) as client, pytest.raises(ServerUnreachable, match=address) as caught:
            client.models()
    assert "octet serve" in str(caught.value.hint)


@pytest.mark.parametrize("server", ["http://", "http://[::1", "ftp://127.0.0.1"])
def test_an_invalid_address_is_named(server: str) -> None:
    with pytest.raises(ServerUnreachable, match="no answer from"), Client(server) as client:
        client.models()


def test_all_pages_are_fetched() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if "cursor" in request.url.params:
            return httpx.Response(200, json={"models": [{"name": "b"}]})
        link = {"Link": '</api/v1/models?cursor=x>; rel="next"'}
        return httpx.Response(200, json={"models": [{"name": "a"}]}, headers=link)

    with _client(handler) as client:
        assert [model["name"] for model in client.models()] == ["a", "b"]


def test_events_resume_after_the_last_one_received() -> None:
    asked_after = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked_after.append(request.headers.get("Last-Event-ID"))
        match len(asked_after):
            case 1:  # the connection is lost
                return httpx.Response(200, stream=_BrokenOff([_event(1), _event(2)]))
            case 2:  # the server stops, and ends the response in the regular way
                return httpx.Response(200, content=_event(3))
        return httpx.Response(200, content=_event(4, state="succeeded"))

    with _client(handler) as client:
        assert [event.id for event in client.events("b1", pause_s=0.0)] == ["1", "2", "3", "4"]
    assert asked_after == [None, "2", "3"]


def test_events_resume_after_a_part_of_the_server_restarts() -> None:
    problem = {"code": "restarting", "detail": "the control plane is not there", "status": 503}
    answers = [httpx.Response(503, json=problem), httpx.Response(200, content=_event(1, state="succeeded"))]
    with _client(lambda request: answers.pop(0)) as client:
        assert [event.id for event in client.events("b1", pause_s=0.0)] == ["1"]


def test_an_ended_build_has_no_more_events() -> None:
    with _client(lambda request: httpx.Response(204)) as client:
        assert list(client.events("b1", pause_s=0.0)) == []


def test_a_missing_build_is_an_error_and_not_a_lost_connection() -> None:
    problem = {"code": "not_found", "detail": "no build b1"}
    with _client(lambda request: httpx.Response(404, json=problem)) as client, pytest.raises(NotFound):
        list(client.events("b1", pause_s=0.0))


def test_events_end_if_the_server_does_not_return() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with _client(handler) as client, pytest.raises(ServerUnreachable):
        list(client.events("b1", pause_s=0.0))


def test_a_missing_report_is_none() -> None:
    problem = {"code": "not_found", "detail": "no such report"}
    with _client(lambda request: httpx.Response(404, json=problem)) as client:
        assert client.report("sha256:0", "coverage") is None


def _client(handler: Handler) -> Client:
    return Client("http://octet.test", transport=httpx.MockTransport(handler))


def _event(number: int, state: str = "running") -> bytes:
    return f"id: {number}\nevent: state\ndata: {json.dumps({'state': state})}\n\n".encode()


class _BrokenOff(httpx.SyncByteStream):
    """A response body that ends with a lost connection."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        raise httpx.ReadError("connection reset")


def test_a_file_that_the_server_has_is_not_sent_again(tmp_path: Path) -> None:
    file, requests = tmp_path / "m.tflite", []
    file.write_bytes(b"model")

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append((request.method, request.url.path, request.url.params.get("source"), request.read()))
        return httpx.Response(200, json={})

    with _client(handler) as client:
        client.push(file, "m", "host", None, lambda sent_bytes: pytest.fail("it was sent"))
    digest = digest_of(b"model")
    assert requests == [("HEAD", f"/api/v1/blobs/{digest}", None, b""), ("PUT", "/api/v1/models", digest, b"")]


def test_only_urls_of_the_server_are_fetched() -> None:
    with _client(lambda request: httpx.Response(200, content=request.url.path.encode())) as client:
        own = client.server
        assert client.fetch(f"{own}/a/x.png", 100) == b"/a/x.png"
        with pytest.raises(InvalidInput, match="more than 5 bytes"):
            client.fetch(f"{own}/a/x.png", 5)
        for other in ("http://example.com/x.png", f"{own}.example.com/x.png", own.replace("http:", "https:") + "/x"):
            with pytest.raises(InvalidInput, match="is not a URL of"):
                client.fetch(other, 100)
