"""Certificates that a control plane sends to the data plane, and long bodies over TLS."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from copy import deepcopy
from pathlib import Path

import grpc
import httpx
import numpy as np
import pytest

from scripts.certificates import make_certificate
from service.api.grpc.inference_pb2 import ModelInferRequest, ModelInferResponse
from service.core.digest import canonical_json
from service.workers.data_plane import orders
from service.workers.data_plane.frames import frame
from tests.support.native import SANITIZERS, built_plane
from tests.support.plane_process import ControlledPlane
from tests.support.small_artifact import compiled, config_of
from tests.support.waiting import GIVE_UP_S

LENGTH = 10 << 18  # 10 MiB of int32
BYTES = 4 * LENGTH
_TWICE = f"""
#include <stdint.h>
int32_t twice(void* const* operands) {{
  for (int i = 0; i < {LENGTH}; ++i) ((int32_t*)operands[1])[i] = 2 * ((const int32_t*)operands[0])[i];
  return 0;
}}
"""
Files = tuple[Path, Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def renewed(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_certificate(tmp_path_factory.mktemp("renewed"))


def certified(files: Files) -> bytes:
    return frame(*orders.certificate(*(each.read_bytes() for each in files)))


def trusting(files: Files) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files[0]))


_SANITIZED = [pytest.param(each, marks=pytest.mark.slow) for each in SANITIZERS]


@pytest.fixture(scope="module", params=["", *_SANITIZED])
def program(request: pytest.FixtureRequest) -> Path | None:
    return built_plane(request.param) if request.param else None


@pytest.fixture
def plane(tmp_path: Path, files: Files, program: Path | None) -> Iterator[ControlledPlane]:
    config = deepcopy(config_of([("input", 0), ("output", 0)], [("twice", [0, 1])], arena_bytes=64))
    config["plan"]["buffers"] = [["input", 0, BYTES], ["output", 0, BYTES]]
    for specs in (config["signature"]["inputs"], config["signature"]["outputs"]):
        specs[0]["shape"] = [1, LENGTH]
    library, constants = tmp_path / "library", tmp_path / "constants"
    library.mkdir()
    constants.write_bytes(b"")
    part = {
        "batch": 1,
        "artifact": "",
        "config": canonical_json(config).decode(),
        "library": str(compiled(_TWICE, folder=library)),
        "constants": str(constants),
    }
    load = {"type": "load", "key": 1, "model": "twice", "version": "1", "instances": 1, "threads": 1, "parts": [part]}
    rules = {"queue_size": 16, "levels": 1, "max_batch": 1, "max_delay_s": 0, "max_wait_s": 60, "timeout_s": 60}
    signature = {**config["signature"], "buckets": [], "batches": 1, "is_batched": False, "keeps_state": False}
    limits = {"type": "configure", "host": "127.0.0.1", "is_particular": False, "not_ready": ""}
    messages = (limits, orders.keys(is_required=False), load | rules | {"signature": signature})
    named = orders.routes([orders.Named("twice", version, 1, ["1"]) for version in ("", "1")])
    first = certified(files) + b"".join(frame(each) for each in (*messages, named))
    with ControlledPlane(tmp_path, first, program) as process:
        assert process.hear("hello")["models"] == [1]
        yield process


def presented(plane: ControlledPlane, *trusted: Files) -> list[bool]:
    """Returns, for each of these certificates, true if the server presents it."""

    def is_its(files: Files) -> bool:
        with socket.create_connection(plane.http, GIVE_UP_S) as connection:
            try:
                trusting(files).wrap_socket(connection, server_hostname="localhost").close()
            except ssl.SSLCertVerificationError:
                return False
            return True

    return [is_its(each) for each in trusted]


def test_new_connections_get_a_renewed_certificate(plane: ControlledPlane, files: Files, renewed: Files) -> None:
    url = f"https://127.0.0.1:{plane.http[1]}/v2/health/live"
    assert presented(plane, files, renewed) == [True, False]
    with httpx.Client(verify=trusting(files), timeout=GIVE_UP_S) as before:
        assert before.get(url).status_code == 200
        plane.say(*orders.certificate(*(each.read_bytes() for each in renewed)))
        assert plane.hear("certificate")["problem"] == ""
        assert presented(plane, files, renewed) == [False, True]
        assert before.get(url).status_code == 200  # this client uses its existing connection


def test_an_invalid_certificate_leaves_the_earlier_one_in_use(
    plane: ControlledPlane, files: Files, renewed: Files
) -> None:
    cert, key = (each.read_bytes() for each in files)
    locked = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAo=\n-----END ENCRYPTED PRIVATE KEY-----\n"
    damaged = cert.replace(b"\nM", b"\n!", 1)
    for pair, problem in {
        (b"", key): "the certificates cannot be read: no start line",
        (damaged, key): "the certificates cannot be read",
        (cert + damaged, key): "the certificates cannot be read",
        (cert, b""): "the private key cannot be read",
        (cert, locked): "the private key cannot be read",
        (cert, renewed[1].read_bytes()): "the private key does not match the certificate: key values mismatch",
    }.items():
        plane.say(*orders.certificate(*pair))
        assert plane.hear("certificate")["problem"].startswith(problem)
    plane.say({"type": "certificate", "chain_bytes": -1}, cert)
    assert plane.hear("certificate")["problem"].startswith("the private key cannot be read")
    assert presented(plane, files) == [True]


def test_handshakes_succeed_while_certificates_change_and_clients_leave(
    plane: ControlledPlane, files: Files, renewed: Files
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files[0])
    context.load_verify_locations(renewed[0])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()

    def shake(number: int) -> bool:
        with socket.create_connection(plane.http, GIVE_UP_S) as leaving:
            leaving.sendall(hello[: len(hello) - number % 2])
        with context.wrap_socket(socket.create_connection(plane.http, GIVE_UP_S), server_hostname="localhost") as it:
            it.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return it.recv(1 << 16).startswith(b"HTTP/1.1 200")

    with ThreadPoolExecutor(8) as pool:
        shaken = pool.map(shake, range(200))
        for number in range(20):
            pair = (files, renewed)[number % 2]
            plane.say(*orders.certificate(*(each.read_bytes() for each in pair)))
            assert plane.hear("certificate")["problem"] == ""
        assert all(shaken)


def test_handshakes_count_toward_the_connections_of_their_address(plane: ControlledPlane, files: Files) -> None:
    plane.say({"type": "configure", "peers": {"max_connections": 16, "share": 0.5}})
    plane.say(*orders.certificate(*(each.read_bytes() for each in files)))
    plane.hear("certificate")  # the certificate is then in use, too
    with ExitStack() as stack:
        greedy = [stack.enter_context(socket.create_connection(plane.http, GIVE_UP_S)) for _ in range(20)]
        assert greedy[-1].recv(1) == b""  # refused, like the connections that were accepted before it
        for each in greedy:
            each.setblocking(False)
        refused = 0
        for each in greedy:
            with suppress(BlockingIOError):
                refused += each.recv(1) == b""
        assert refused == 12
        other = stack.enter_context(socket.create_connection(plane.http, GIVE_UP_S, ("127.0.0.2", 0)))
        with trusting(files).wrap_socket(other, server_hostname="localhost") as secured:
            secured.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert secured.recv(1 << 16).startswith(b"HTTP/1.1 200")


def test_long_bodies_are_sent_both_ways_to_slow_readers(plane: ControlledPlane, files: Files) -> None:
    values = np.arange(LENGTH, dtype=np.int32)
    head = (
        b"POST /v2/models/twice/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: 0\r\n"
        b"Accept: application/octet-stream\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    ) % BYTES
    connection = trusting(files).wrap_socket(
        socket.create_connection(plane.http, GIVE_UP_S), server_hostname="localhost"
    )
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    with connection:
        connection.sendall(head + values.tobytes())
        received = bytearray()
        while piece := connection.recv(1 << 14):
            received += piece
            if len(received) < 1 << 20:
                time.sleep(0.001)  # by then the socket of the server is full
    assert received.startswith(b"HTTP/1.1 200")
    np.testing.assert_array_equal(np.frombuffer(received[-BYTES:], np.int32), 2 * values)


def test_long_messages_are_sent_both_ways(plane: ControlledPlane, files: Files) -> None:
    values = np.arange(LENGTH, dtype=np.int32)
    request = ModelInferRequest(model_name="twice", raw_input_contents=[values.tobytes()])
    request.inputs.add(name="in0", datatype="INT32", shape=[1, LENGTH])
    credentials = grpc.ssl_channel_credentials(files[0].read_bytes())
    longest = [("grpc.max_receive_message_length", -1)]
    for port in (plane.grpc[1], plane.http[1]):
        with grpc.secure_channel(f"localhost:{port}", credentials, longest) as channel:
            infer = channel.unary_unary(
                "/inference.GRPCInferenceService/ModelInfer",
                request_serializer=ModelInferRequest.SerializeToString,
                response_deserializer=ModelInferResponse.FromString,
            )
            answer = infer(request, timeout=GIVE_UP_S)
        np.testing.assert_array_equal(np.frombuffer(answer.raw_output_contents[0], np.int32), 2 * values)
