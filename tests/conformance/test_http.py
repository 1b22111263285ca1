"""Tests the running data plane with tables of what RFC 9112, 9113 and 7541 allow and forbid."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from itertools import count
from urllib.parse import urlsplit

import pytest

from service.api.grpc.inference_pb2 import ModelInferRequest
from tests.support import http1_cases, http2_cases
from tests.support.http2_cases import Ends
from tests.support.http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RST_STREAM,
    Peer,
    Service,
    block,
    frame,
    message,
)
from tests.support.plane_models import LENGTH, bare_plane, sleeping
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import GIVE_UP_S

LIVE = Service("/inference.GRPCInferenceService/ServerLive", b"", b"\x08\x01")
_ENTRY = {"name": "in0", "datatype": "INT32", "shape": [1, LENGTH]}
_PROBE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_ANSWER = re.compile(rb"HTTP/1\.1 (\d+) .*?content-length: (\d+)\r\n.*?\r\n\r\n", re.DOTALL)
_sources = (f"127.0.{number // 250}.{2 + number % 250}" for number in count())  # each address has its own limits


def _json() -> bytes:
    return json.dumps({"inputs": [{**_ENTRY, "data": [0] * LENGTH}]}).encode()


def _slow_call() -> bytes:
    """Returns a request on stream 1. The model takes a second to compute it."""
    request = ModelInferRequest(model_name="sleeping", raw_input_contents=[(1000).to_bytes(4, "little") * LENGTH])
    request.inputs.add(**_ENTRY)
    head = block(Service("/inference.GRPCInferenceService/ModelInfer", b"", b"").head())
    return frame(HEADERS, END_HEADERS, 1, head) + frame(DATA, END_STREAM, 1, message(request.SerializeToString()))


HTTP1 = http1_cases.cases("/v2/models/sleeping/infer", _json())
HTTP2 = http2_cases.cases(LIVE, _slow_call())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("conformance")
    with bare_plane(folder, [sleeping(folder, 1)]) as process:
        yield process


@pytest.mark.parametrize("case", HTTP1, ids=str)
def test_http_1(served: PlaneProcess, case: http1_cases.Case) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), GIVE_UP_S) as connection:
        connection.sendall(case.sent + _PROBE)
        answered = b""
        while piece := connection.recv(1 << 16):
            answered += piece
    statuses = []
    while answered:
        head = _ANSWER.match(answered)
        assert head is not None, answered
        statuses.append(int(head[1]))
        answered = answered[head.end() + int(head[2]) :]
    assert statuses == [*case.statuses, *([200] if case.is_kept else [])]


@pytest.fixture(params=["gRPC's port", "HTTP's port"])
def peer(request: pytest.FixtureRequest, served: PlaneProcess) -> Iterator[Peer]:
    port = int(served.grpc.rpartition(":")[2]) if request.param == "gRPC's port" else urlsplit(served.url).port
    assert port
    with Peer(port, source=next(_sources), service=LIVE) as peer:
        yield peer


@pytest.mark.parametrize("case", HTTP2, ids=str)
def test_http_2(peer: Peer, case: http2_cases.Case) -> None:
    peer.send(case.sent)
    match case.ends:
        case Ends.CONNECTION:
            assert peer.closing_error() == case.error
            return
        case Ends.STREAM:
            assert peer.expect(RST_STREAM, 1).error == case.error
        case Ends.NOTHING:
            assert RST_STREAM not in {received.type for received in peer.read_responses()}
    assert peer.is_alive()


@pytest.mark.parametrize("case", http2_cases.prefaces(), ids=str)
def test_http_2_begins_with_its_preface(served: PlaneProcess, case: http2_cases.Case) -> None:
    with Peer(int(served.grpc.rpartition(":")[2]), greet=False, source=next(_sources)) as peer:
        peer.send(case.sent)
        assert peer.closing_error() == case.error
