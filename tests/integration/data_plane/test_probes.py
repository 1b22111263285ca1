"""Health probes are answered even if the server has too many connections for any other request."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from tests.support.plane_models import WIDE, bare_plane, wide
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import GIVE_UP_S, eventually

MOST, PROBES = 20, 64  # The limit of connections, and the number of additional connections for probes.
NO_OTHER_LIMIT_S = 10 * GIVE_UP_S  # The timeout of an idle connection is longer than the test.
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
REQUEST = {"inputs": [{"name": "in0", "datatype": "INT32", "shape": [1, WIDE], "data": [7] * WIDE}]}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("probes")
    peers = {"max_connections": MOST, "max_calls": 1000, "max_message_bytes": 64 << 20, "share": 1.0}
    with bare_plane(folder, [wide(folder, 1)], peers=peers, head_timeout_s=NO_OTHER_LIMIT_S) as process:
        yield process


@pytest.fixture
def full(served: PlaneProcess) -> Iterator[PlaneProcess]:
    """All connections are in use. Their clients have received one response each."""
    with ExitStack() as others:
        for _ in range(MOST):
            connection = others.enter_context(connect(served))
            connection.sendall(LIVE)
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        yield served
    eventually(lambda: is_predicting(served))


def connect(served: PlaneProcess) -> socket.socket:
    address = urlsplit(served.url)
    return socket.create_connection((address.hostname, address.port), GIVE_UP_S)


def client(address: str) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(local_address=address), timeout=GIVE_UP_S)


def is_predicting(served: PlaneProcess) -> bool:
    with client(HERE) as asking:
        return asking.post(f"{served.url}/v2/models/wide/infer", json=REQUEST).status_code == httpx.codes.OK


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_a_probe_is_answered(full: PlaneProcess, address: str) -> None:
    with client(address) as probe:
        for path in ("live", "ready") * 3:
            answer = probe.get(f"{full.url}/v2/health/{path}")
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")


def test_other_requests_are_refused(full: PlaneProcess) -> None:
    with client(ELSEWHERE) as other:
        assert other.post(f"{full.url}/v2/models/wide/infer", json=REQUEST).status_code == 429
        refused = other.get(f"{full.url}/v2")
        assert (refused.status_code, refused.json()["detail"]) == (429, "there are too many connections")
        assert refused.headers["retry-after"]


def test_grpc_requests_are_refused_too(full: PlaneProcess) -> None:
    with grpc.insecure_channel(full.grpc) as channel:
        answer = HealthStub(channel).Check(HealthCheckRequest(), timeout=GIVE_UP_S)
        assert answer.status == HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")(b"", timeout=GIVE_UP_S)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_silent_connection_is_closed_soon(full: PlaneProcess) -> None:
    with ExitStack() as silent:
        for _ in range(PROBES):
            silent.enter_context(connect(full))

        def is_answered() -> bool:
            try:
                with client(ELSEWHERE) as probe:
                    return probe.get(f"{full.url}/v2/health/live").status_code == httpx.codes.OK
            except httpx.TransportError:
                return False

        eventually(is_answered)
