"""TLS and HTTP/2 on the data plane's ports, with third-party clients and with plain sockets."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image
from tritonclient import grpc as triton_grpc

from scripts.certificates import make_certificate
from service.cache import OciLayout
from service.core.errors import Unsupported
from service.workers.data_plane import program
from tests.support.compiled import PICTURES, compile_sample, expected
from tests.support.http2_frames import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, Peer, head, settings
from tests.support.plane_process import PlaneProcess, plane
from tests.support.waiting import GIVE_UP_S

FILE = "digits_uint8.tflite"
IMAGE = np.asarray(Image.open(PICTURES[0]).convert("L"), np.uint8).reshape(1, 16, 16, 1)
HEAD_TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    compile_sample(FILE, OciLayout(folder / "digits"), folder / "scratch")
    return f"digits={folder / 'digits'}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def served(model: str, files: tuple[Path, Path]) -> Iterator[PlaneProcess]:
    cert, key = map(str, files)
    with plane([model], OCTET_TLS_CERT=cert, OCTET_TLS_KEY=key, OCTET_HEAD_TIMEOUT_S=str(HEAD_TIMEOUT_S)) as process:
        yield process


@pytest.fixture(scope="module")
def plain(model: str) -> Iterator[PlaneProcess]:
    with plane([model]) as process:
        yield process


@pytest.fixture
def trusting(files: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files[0]))


def predict(client: httpx.Client, url: str) -> list[int]:
    request = {"inputs": [{"name": "image", "datatype": "UINT8", "shape": [1, 16, 16, 1], "data": IMAGE.tolist()}]}
    answer = client.post(f"{url}/v2/models/digits/infer", json=request)
    data: list[int] = answer.raise_for_status().json()["outputs"][0]["data"]
    return data


def infer(client: triton_grpc.InferenceServerClient) -> list[list[int]]:
    tensor = triton_grpc.InferInput("image", [1, 16, 16, 1], "UINT8")
    tensor.set_data_from_numpy(IMAGE)
    answer: list[list[int]] = client.infer("digits", [tensor]).as_numpy("probabilities").tolist()
    return answer


def connect(url: str) -> socket.socket:
    address = urlsplit(url if "://" in url else f"//{url}")
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), timeout=GIVE_UP_S)


def until_the_end(connection: socket.socket) -> bytes:
    received = b""
    try:
        while piece := connection.recv(1 << 16):
            received += piece
    except ConnectionResetError:
        pass
    return received


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_http_works_over_both_versions(served: PlaneProcess, trusting: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    trusting.minimum_version = trusting.maximum_version = version
    with httpx.Client(verify=trusting, timeout=GIVE_UP_S) as client:
        for _ in range(2):
            assert predict(client, served.url) == expected(FILE)[0].tolist()


def test_older_tls_versions_are_rejected(served: PlaneProcess) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with connect(served.url) as connection, pytest.raises(ssl.SSLError, match="protocol version"):
        context.wrap_socket(connection)


@pytest.mark.parametrize("port", ["grpc", "url"])
def test_grpc_works_on_both_ports(served: PlaneProcess, files: tuple[Path, Path], port: str) -> None:
    where = getattr(served, port).removeprefix("https://")
    with triton_grpc.InferenceServerClient(where, ssl=True, root_certificates=str(files[0])) as client:
        assert infer(client) == [expected(FILE)[0].tolist()]


def test_grpc_works_on_the_http_port_in_plain_text(plain: PlaneProcess) -> None:
    with triton_grpc.InferenceServerClient(plain.url.removeprefix("http://")) as client:
        assert infer(client) == [expected(FILE)[0].tolist()]
    with httpx.Client(timeout=GIVE_UP_S) as client:
        assert predict(client, plain.url) == expected(FILE)[0].tolist()


CHOICES = [
    ("url", ["h2", "http/1.1"], "http/1.1"),
    ("url", ["http/1.1"], "http/1.1"),
    ("url", ["h2"], "h2"),
    ("url", [], None),
    ("grpc", ["http/1.1", "h2"], "h2"),
]


@pytest.mark.parametrize(("port", "offered", "chosen"), CHOICES)
def test_alpn_selects_the_protocol(
    served: PlaneProcess, trusting: ssl.SSLContext, port: str, offered: list[str], chosen: str | None
) -> None:
    if offered:
        trusting.set_alpn_protocols(offered)
    with trusting.wrap_socket(connect(getattr(served, port)), server_hostname="localhost") as connection:
        assert connection.selected_alpn_protocol() == chosen
        connection.sendall(PREFACE + settings() if chosen == "h2" else b"GET /v2/health/live HTTP/1.0\r\n\r\n")
        answer = connection.recv(1 << 10)
        assert answer[3] == SETTINGS if chosen == "h2" else answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("port", "offered"), [("url", "spdy/3"), ("grpc", "http/1.1")])
def test_alpn_rejects_unsupported_protocols(
    served: PlaneProcess, trusting: ssl.SSLContext, port: str, offered: str
) -> None:
    trusting.set_alpn_protocols([offered])
    with connect(getattr(served, port)) as connection, pytest.raises(ssl.SSLError, match="no application protocol"):
        trusting.wrap_socket(connection, server_hostname="localhost")


def test_grpc_requires_alpn(served: PlaneProcess, trusting: ssl.SSLContext) -> None:
    with trusting.wrap_socket(connect(served.grpc), server_hostname="localhost") as connection:
        connection.sendall(PREFACE + settings())
        assert until_the_end(connection) == b""


@pytest.mark.parametrize("step", [1, 18, 24, 1000])
def test_http2_is_recognized_in_pieces_of_any_size(plain: PlaneProcess, step: int) -> None:
    port = urlsplit(plain.url).port
    assert port
    with Peer(port, greet=False) as peer:
        greeting = PREFACE + settings()
        for at in range(0, len(greeting), step):
            peer.send(greeting[at : at + step])
            time.sleep(0.001)
        assert peer.read_responses()[0].type == SETTINGS
        peer.headers(1, head(content_type="application/json"), END_HEADERS | END_STREAM)
        refused = peer.expect(HEADERS, 1)
        assert b"415" in refused.payload


def test_data_that_only_begins_like_http2_is_rejected(plain: PlaneProcess) -> None:
    with connect(plain.url) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n")
        assert until_the_end(connection).startswith(b"HTTP/1.1 505 ")


def test_without_grpc_there_is_no_http2(model: str) -> None:
    with plane([model], OCTET_GRPC="false") as process, connect(process.url) as connection:
        connection.sendall(PREFACE + settings())
        assert until_the_end(connection).startswith(b"HTTP/1.1 505 ")


def test_plain_http_on_a_tls_port_gets_an_explanation(served: PlaneProcess) -> None:
    answer = httpx.get(served.url.replace("https:", "http:") + "/v2")
    assert answer.status_code == 400
    assert answer.text == "this port uses TLS: send requests to https://"


@pytest.mark.parametrize("port", ["url", "grpc"])
def test_an_unfinished_handshake_ends_while_others_are_served(
    served: PlaneProcess, trusting: ssl.SSLContext, port: str
) -> None:
    begun_s = time.monotonic()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    silent, halfway, slow = (connect(getattr(served, port)) for _ in range(3))
    halfway.sendall(hello)
    with silent, halfway, slow, httpx.Client(verify=trusting, timeout=GIVE_UP_S) as other:
        for byte in hello[:10]:
            with suppress(ConnectionError):  # the server may already have closed the connection because of the timeout
                slow.sendall(bytes([byte]))
            assert predict(other, served.url) == expected(FILE)[0].tolist()
        assert until_the_end(silent) == b""
        assert until_the_end(slow) == b""
        assert until_the_end(halfway)  # the server sends its part and nothing more
    assert time.monotonic() - begun_s > 0.9 * HEAD_TIMEOUT_S


@pytest.mark.parametrize("is_open", [False, True], ids=["instead of a handshake", "behind it"])
def test_garbage_ends_only_its_own_connection(served: PlaneProcess, trusting: ssl.SSLContext, is_open: bool) -> None:
    for seed in range(20):
        garbage = b"\x17\x03\x03\x01\x00" + np.random.default_rng(seed).bytes(256)
        connection = connect(served.url)
        if is_open:
            connection = trusting.wrap_socket(connection, server_hostname="localhost")
        with connection:
            os.write(connection.fileno(), garbage)
            with suppress(ssl.SSLError):
                assert b"HTTP" not in until_the_end(connection)
    with httpx.Client(verify=trusting, timeout=GIVE_UP_S) as client:
        assert predict(client, served.url) == expected(FILE)[0].tolist()


def test_renegotiation_is_refused(served: PlaneProcess) -> None:
    where = served.url.removeprefix("https://")
    command = ["openssl", "s_client", "-connect", where, "-tls1_2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:
        output = client.communicate(b"R\n", timeout=GIVE_UP_S)[0]
    assert b"no renegotiation" in output


def test_the_process_is_sandboxed(served: PlaneProcess) -> None:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{served.pid}/status").read_text().splitlines() if ":" in line
    )
    assert status["NoNewPrivs"].strip() == "1"
    assert status["Seccomp"].strip() == "2"


def test_an_invalid_certificate_is_reported_at_the_start(tmp_path: Path, model: str, files: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "service.cli", "worker", "serve", model, "--port=0", "--grpc-port=0"]
    (tmp_path / "text.pem").write_text("no certificate")
    tls = [f"--tls-cert={tmp_path / 'text.pem'}", f"--tls-key={files[1]}"]
    run = subprocess.run([*command, *tls], capture_output=True, text=True)
    assert run.returncode != 0
    assert "are not a certificate and its key" in " ".join((run.stdout + run.stderr).split())


def test_without_openssl_the_error_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    program.require_tls()
    monkeypatch.setattr(program, "_OPENSSL", "libabsent.so.3")
    with pytest.raises(Unsupported, match="TLS needs OpenSSL 3") as raised:
        program.require_tls()
    assert "libssl3" in (raised.value.hint or "")
