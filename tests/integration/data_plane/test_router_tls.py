"""A router's data plane forwards requests over TLS to the data planes of workers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton_grpc

from service.workers.data_plane import orders
from tests.support import runners
from tests.support.certificates import Authority
from tests.support.routed import KEY, Cluster, cluster, request, vector
from tests.support.waiting import GIVE_UP_S, eventually

NAME = "workers.example"
LARGE = (1, 150_000)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def routed(tmp_path: Path, authority: Authority) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        trust(made, authority)
        yield made


def trust(routed: Cluster, authority: Authority) -> None:
    order, certificates = orders.authority(authority.file.read_bytes())
    routed.say(order, data=certificates)


def infer(routed: Cluster, seed: int = 0) -> httpx.Response:
    return httpx.post(f"{routed.url}/v2/models/echo/infer", content=request(vector(seed)), timeout=GIVE_UP_S)


def echo() -> runners.FunctionRunner:
    return runners.identity("UINT8", 1, 16)


@pytest.mark.parametrize(
    ("name", "certified"), [(NAME, NAME), ("127.0.0.1", "127.0.0.1"), ("1.workers.example", "*.workers.example")]
)
def test_predictions_are_answered(routed: Cluster, authority: Authority, name: str, certified: str) -> None:
    worker = routed.worker({"echo": echo()}, authority.server(certified), server_name=name)
    routed.tell()
    for seed in range(5):
        answer = infer(routed, seed)
        assert answer.status_code == 200, answer.text
        assert answer.json()["outputs"][0]["data"] == vector(seed).reshape(-1).tolist()
    assert routed.forwards() == {worker.id: {"forwarded": 5, "retried": 0, "failed": 0}}
    assert routed.distrusted == {}


def test_large_tensors_are_forwarded_completely_over_grpc(routed: Cluster, authority: Authority) -> None:
    routed.worker({"large": runners.identity("UINT8", *LARGE)}, authority.server(NAME), server_name=NAME)
    routed.tell()
    values = np.random.default_rng(1).integers(0, 256, LARGE, np.uint8)
    given = triton_grpc.InferInput("x", LARGE, "UINT8")
    given.set_data_from_numpy(values)
    with triton_grpc.InferenceServerClient(routed.grpc) as client:
        for _ in range(20):
            answer = client.infer("large", [given])
            assert np.array_equal(answer.as_numpy(answer.get_response().outputs[0].name), values)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("authority", "unable to get local issuer certificate"),
        ("expired", "certificate has expired"),
        ("name", "hostname mismatch"),
        ("address", "IP address mismatch"),
    ],
)
def test_an_unverified_worker_gets_no_requests_and_the_503_explains_it(
    routed: Cluster, authority: Authority, tmp_path: Path, wrong: str, reason: str
) -> None:
    other = Authority(tmp_path, "another")
    files = {
        "authority": other.server(NAME),
        "expired": authority.server(NAME, lasts=timedelta(hours=-1)),
        "name": authority.server("another.example"),
        "address": authority.server("127.0.0.2"),
    }[wrong]
    worker = routed.worker({"echo": echo()}, files, server_name="127.0.0.1" if wrong == "address" else NAME)
    routed.tell()
    answer = infer(routed)
    assert answer.status_code == 503
    assert f"worker {worker.id} is not trusted: {reason}" in answer.json()["detail"]
    assert routed.distrusted[worker.id].startswith(reason)
    assert all(each["forwarded"] == 0 for each in routed.forwards().values())


def test_other_workers_replace_an_unverified_one(routed: Cluster, authority: Authority, tmp_path: Path) -> None:
    false = routed.worker({"echo": echo()}, Authority(tmp_path, "another").server(NAME), server_name=NAME)
    routed.worker({"echo": echo()}, authority.server(NAME), server_name=NAME)
    routed.tell()
    assert [infer(routed, seed).status_code for seed in range(20)] == [200] * 20
    assert routed.forwards().get(false.id, {}).get("forwarded", 0) == 0


def test_a_worker_that_is_verified_again_gets_requests(routed: Cluster, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "another")
    worker = routed.worker({"echo": echo()}, other.server(NAME), server_name=NAME)
    routed.tell()
    assert infer(routed).status_code == 503
    trust(routed, other)
    routed.gather()
    eventually(lambda: infer(routed).status_code == 200)
    assert routed.distrusted[worker.id] == ""


def test_the_router_never_falls_back_to_plain_text(routed: Cluster) -> None:
    """The test has two cases: the worker does not use TLS, and the router has no certificate authority."""
    listening = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heard: list[bytes] = []

        def listen() -> None:
            while not listening.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(1 << 10))
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        routed.places["plain"] = listener.getsockname()[1]
        members = orders.Worker("plain", "p", 1, "ready", (("echo", ""),), server_name=NAME)
        routed.say(orders.workers("a secret of the cluster", [members], ()))
        routed.gather()
        answer = infer(routed)
        assert (answer.status_code, heard[0][:1]) == (503, b"\x16")  # a TLS record that starts a handshake
        assert "worker plain is not trusted" in answer.json()["detail"]
        order, nothing = orders.authority(b"")
        routed.say(order, data=nothing)
        routed.gather()
        assert "no certificate authority is configured to verify it" in infer(routed).json()["detail"]
        assert not any(b"secret" in each for each in heard)
        listening.set()


def test_a_worker_that_does_not_complete_the_handshake_is_abandoned(routed: Cluster, authority: Authority) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        routed.places["silent"] = silent.getsockname()[1]
        routed.worker({"echo": echo()}, authority.server(NAME), server_name=NAME)
        (good,) = routed.workers
        members = [
            orders.Worker("silent", "p", 100, "ready", (("echo", ""),), server_name=NAME),
            orders.Worker(good.id, "p", 1, "ready", tuple(good.loaded), server_name=NAME),
        ]
        routed.say(orders.workers(KEY, members, ()))
        routed.gather()
        answer = infer(routed)
        assert answer.status_code == 200, answer.text
        eventually(lambda: routed.distrusted.get("silent") == "the TLS handshake timed out")
