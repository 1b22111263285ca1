"""The data plane alone, with third-party clients and with plain sockets."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from PIL import Image
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from service.cache import OciLayout
from tests.support.compiled import PICTURES, compile_sample, expected
from tests.support.data_plane import as_binary, unpacked
from tests.support.plane_process import PlaneProcess, plane
from tests.support.waiting import GIVE_UP_S

FILE = "digits_uint8.tflite"
IMAGES = [np.asarray(Image.open(path).convert("L"), np.uint8).reshape(1, 16, 16, 1) for path in PICTURES]
BINARY = {"binary_data_output": True}


@pytest.fixture
def http(served: PlaneProcess) -> Iterator[triton_http.InferenceServerClient]:
    client = triton_http.InferenceServerClient(served.url.removeprefix("http://"))
    yield client
    client.close()


@pytest.fixture
def grpc(served: PlaneProcess) -> Iterator[triton_grpc.InferenceServerClient]:
    client = triton_grpc.InferenceServerClient(served.grpc)
    yield client
    client.close()


def described(image: np.ndarray[Any, Any] | None = None, **members: Any) -> dict[str, Any]:
    """Returns a request as JSON. Without an image, binary data follows the JSON."""
    entry: dict[str, Any] = {"name": "image", "datatype": "UINT8", "shape": [1, 16, 16, 1]}
    more = {"parameters": {"binary_data_size": 256}} if image is None else {"data": image.reshape(-1).tolist()}
    return {"inputs": [entry | more], **members}


def infer(served: PlaneProcess, content: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{served.url}/v2/models/digits/infer", content=content, headers=named)


@pytest.mark.parametrize("binary", [True, False])
def test_triton_over_http_gets_the_output_of_the_reference(
    http: triton_http.InferenceServerClient, binary: bool
) -> None:
    for image, wanted in zip(IMAGES, expected(FILE), strict=True):
        tensor = triton_http.InferInput("image", [1, 16, 16, 1], "UINT8")
        tensor.set_data_from_numpy(image, binary_data=binary)
        outputs = [triton_http.InferRequestedOutput("probabilities", binary_data=binary)]
        answer = http.infer("digits", [tensor], outputs=outputs, request_id="mine")
        assert answer.as_numpy("probabilities").tolist() == [wanted.tolist()]
        assert answer.get_response()["id"] == "mine"


def test_triton_over_grpc_gets_the_output_of_the_reference(grpc: triton_grpc.InferenceServerClient) -> None:
    for image, wanted in zip(IMAGES, expected(FILE), strict=True):
        tensor = triton_grpc.InferInput("image", [1, 16, 16, 1], "UINT8")
        tensor.set_data_from_numpy(image)
        assert grpc.infer("digits", [tensor]).as_numpy("probabilities").tolist() == [wanted.tolist()]


def test_streams(grpc: triton_grpc.InferenceServerClient) -> None:
    answers: list[tuple[Any, Any]] = []
    there = threading.Event()

    def came(result: Any, error: Any) -> None:
        answers.append((result, error))
        if len(answers) == 3:
            there.set()

    tensor = triton_grpc.InferInput("image", [1, 16, 16, 1], "UINT8")
    tensor.set_data_from_numpy(IMAGES[0])
    wrong = triton_grpc.InferInput("picture", [1], "UINT8")
    wrong.set_data_from_numpy(np.zeros(1, np.uint8))
    grpc.start_stream(came)
    for inputs in ([tensor], [wrong], [tensor]):
        grpc.async_stream_infer("digits", inputs)
    assert there.wait(GIVE_UP_S)
    grpc.stop_stream()
    assert [error is None for _, error in answers] == [True, False, True]
    assert "the model has no input 'picture'" in str(answers[1][1])


def test_both_protocols_return_the_metadata(
    http: triton_http.InferenceServerClient, grpc: triton_grpc.InferenceServerClient
) -> None:
    assert http.is_server_live()
    assert http.is_server_ready()
    assert http.is_model_ready("digits", "1")
    assert not http.is_model_ready("cats")
    assert grpc.is_server_live()
    assert grpc.is_server_ready()
    assert grpc.is_model_ready("digits")
    assert grpc.get_server_metadata(as_json=True) == http.get_server_metadata()
    about = http.get_model_metadata("digits")
    assert about["outputs"][0]["parameters"] == {"scale": 0.00390625, "zero_point": 0}
    assert grpc.get_model_metadata("digits").inputs[0].shape == about["inputs"][0]["shape"] == [1, 16, 16, 1]
    assert grpc.get_model_config("digits").config.backend == http.get_model_config("digits")["backend"] == "octet"


def test_both_protocols_count_requests(
    http: triton_http.InferenceServerClient, grpc: triton_grpc.InferenceServerClient
) -> None:
    def success() -> tuple[int, int]:
        over_http = http.get_inference_statistics("digits")["model_stats"][0]["inference_stats"]["success"]["count"]
        return over_http, grpc.get_inference_statistics("digits").model_stats[0].inference_stats.success.count

    before = success()
    tensor = triton_grpc.InferInput("image", [1, 16, 16, 1], "UINT8")
    tensor.set_data_from_numpy(IMAGES[0])
    grpc.infer("digits", [tensor])
    assert success() == (before[0] + 1, before[1] + 1)


def test_accepts_a_raw_tensor_as_the_body(served: PlaneProcess) -> None:
    answer = infer(served, IMAGES[0].tobytes(), Inference_Header_Content_Length="0", Accept="application/octet-stream")
    length = int(answer.headers["inference-header-content-length"])
    assert answer.content[length:] == expected(FILE)[0].tobytes()
    assert answer.headers["server-timing"].startswith("queue;dur=")


def test_classifies_and_dequantizes(served: PlaneProcess) -> None:
    wanted = [{"name": "probabilities", "parameters": {"classification": 2, "dequantize": True}}]
    answer = infer(served, json.dumps(described(IMAGES[0], outputs=wanted)).encode()).json()
    scores = expected(FILE)[0] / np.float32(256)
    first, second = np.argsort(-scores, kind="stable")[:2]
    assert answer["outputs"][0] == {
        "name": "probabilities",
        "datatype": "BYTES",
        "shape": [2],
        "data": [f"{scores[first]!s}:{first}", f"{scores[second]!s}:{second}"],
    }


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_accepts_compressed_bodies(served: PlaneProcess, coding: str) -> None:
    import zlib

    plain = json.dumps(described(IMAGES[0])).encode()
    body = gzip.compress(plain) if coding == "gzip" else zlib.compress(plain)
    answer = infer(served, body, Content_Encoding=coding)
    assert answer.json()["outputs"][0]["data"] == expected(FILE)[0].tolist()
    assert infer(served, body[:-9], Content_Encoding=coding).status_code == 400


def test_accepts_chunked_bodies_and_nested_arrays(served: PlaneProcess) -> None:
    request = described(IMAGES[0])
    request["inputs"][0]["data"] = IMAGES[0].tolist()
    text = json.dumps(request, indent=1).encode()

    def pieces() -> Iterator[bytes]:
        for at in range(0, len(text), 100):
            yield text[at : at + 100]

    answer = httpx.post(f"{served.url}/v2/models/digits/infer", content=pieces())
    assert answer.json()["outputs"][0]["data"] == expected(FILE)[0].tolist()


REFUSED = [
    (b'{"inputs": [', 400, "the request is not well-formed JSON: it ends too early at byte 12"),
    (b"[]", 400, "the request is [], not a JSON object"),
    (b"{}", 400, "'inputs' is missing"),
    (b'{"inputs": [{}]}', 400, "an entry of 'inputs' is not an object with a 'name'"),
    (b'{"inputs": [], "id": 7}', 400, "'id' is 7, not a string"),
    (b'{"inputs": []}', 400, "input 'image' is missing"),
    (b'{"inputs": [], "outputs": [{"name": "x"}]}', 400, "the model has no output 'x'"),
    (b'{"inputs": [], "parameters": {"priority": -1}}', 400, "input 'image' is missing"),
    (json.dumps(described(IMAGES[0], parameters={"priority": 9})).encode(), 400, "there is no priority 9"),
    (json.dumps(described(IMAGES[0], parameters={"timeout": True})).encode(), 400, "the parameter 'timeout' is true"),
    (json.dumps(described(IMAGES[0])).encode().replace(b"UINT8", b"FP32"), 400, "is sent as 'FP32'"),
    (json.dumps(described(IMAGES[0])).encode().replace(b"[1, 16, 16, 1]", b"[2, 16, 16, 1]"), 400, "has shape [2, 16"),
    (json.dumps(described(IMAGES[0][:, :9])).encode(), 400, "has 144 elements, but its shape [1, 16, 16, 1] has 256"),
    (json.dumps(described(IMAGES[0].astype(int) + 200)).encode(), 400, "but UINT8 goes from 0 to 255"),
    (json.dumps(described(IMAGES[0] / 2)).encode(), 400, "but takes whole numbers"),
    (json.dumps(described()).encode(), 400, "the inputs declare 256 bytes of binary data, but 0 follow the JSON"),
    (b'{"inputs": [{"name": "\xff"}]}', 400, "it is not UTF-8"),
    (b"[" * 5000, 400, "not well-formed JSON"),
    (b" " * 200_000, 413, "the request has 200000 bytes of JSON"),
]


@pytest.mark.parametrize(("body", "status", "detail"), REFUSED, ids=range(len(REFUSED)))
def test_errors_explain_what_is_wrong(served: PlaneProcess, body: bytes, status: int, detail: str) -> None:
    answer = infer(served, body, X_Request_Id="this-one")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert detail in problem["detail"]
    assert (problem["error"], problem["request_id"], problem["status"]) == (problem["detail"], "this-one", status)
    assert problem["instance"] == "/v2/models/digits/infer"


def test_unknown_models_are_not_found(served: PlaneProcess, grpc: triton_grpc.InferenceServerClient) -> None:
    for path in ("v2/models/cats", "v2/models/digits/versions/2", "api/v1/models", "nothing"):
        assert httpx.get(f"{served.url}/{path}").status_code == 404
    with pytest.raises(InferenceServerException, match="NOT_FOUND"):
        grpc.get_model_metadata("cats")


BAD_HEADS = [
    (b"GET / HTTP/1.1\n\n", 400),
    (b"GET /\r\nHost: x\r\n\r\n", 400),
    (b"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 505),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (b"POST / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n", 417),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
]


@pytest.mark.parametrize(("head", "status"), BAD_HEADS, ids=range(len(BAD_HEADS)))
def test_ends_connections_with_ambiguous_heads(served: PlaneProcess, head: bytes, status: int) -> None:
    answer = _talk(served, head)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert answer.count(b"HTTP/1.1") == 1


def test_answers_pipelined_requests_in_order(served: PlaneProcess) -> None:
    header = json.dumps(described(parameters=BINARY)).encode()
    stream = b"".join(
        b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: n%d\r\nContent-Length: %d\r\n"
        b"Inference-Header-Content-Length: %d\r\nConnection: %s\r\n\r\n%s%s"
        % (
            *(index, len(header) + 256, len(header)),
            *(b"close" if index == len(IMAGES) - 1 else b"keep-alive", header, image.tobytes()),
        )
        for index, image in enumerate(IMAGES)
    )
    for step in (1 << 20, 1000, 97):
        answer = _talk(served, stream, step)
        heads = [part for part in answer.split(b"\r\n") if part.startswith(b"x-request-id: ")]
        assert heads == [b"x-request-id: n%d" % index for index in range(len(IMAGES))]
        assert all(wanted.tobytes() in answer for wanted in expected(FILE))


def test_sends_100_continue_on_request(served: PlaneProcess) -> None:
    body = json.dumps(described(IMAGES[0])).encode()
    head = (
        b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\n"
        b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    )
    with _connected(served) as connection:
        connection.sendall(head % len(body))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(100).startswith(b"HTTP/1.1 200 OK")
    with _connected(served) as connection:
        connection.sendall(head.replace(b"/digits/", b"/cats/") % len(body))
        assert connection.recv(100).startswith(b"HTTP/1.1 404 Not Found")


def test_rejects_requests_from_other_sites(served: PlaneProcess) -> None:
    body = json.dumps(described(IMAGES[0])).encode()
    assert infer(served, body, Origin="http://elsewhere.example").json()["code"] == "cross_site"
    assert infer(served, body, Host="rebound.example").json()["code"] == "foreign_host"
    assert infer(served, body, Origin=served.url).status_code == 200


def test_decodes_pictures(served: PlaneProcess, grpc: triton_grpc.InferenceServerClient) -> None:
    picture, wanted = PICTURES[0].read_bytes(), expected(FILE)[0]
    answer = infer(served, picture, Inference_Header_Content_Length="0", Content_Type="image/png")
    assert answer.json()["outputs"][0]["data"] == wanted.tolist()
    tensor = triton_grpc.InferInput("image", [1], "BYTES")
    tensor.set_data_from_numpy(np.array([picture], np.object_))
    assert grpc.infer("digits", [tensor]).as_numpy("probabilities").tolist() == [wanted.tolist()]


def test_refuses_to_listen_on_a_public_address_without_keys(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli", "worker", "serve", str(tmp_path), "--host=0.0.0.0"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode != 0
    assert "other machines can reach 0.0.0.0" in run.stdout + run.stderr


def test_reports_a_folder_without_a_model(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli", "worker", "serve", f"m={tmp_path}", "--port=0", "--grpc-port=0"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode != 0
    assert str(tmp_path) in run.stdout + run.stderr


def test_is_small(served: PlaneProcess) -> None:
    for image in IMAGES:
        infer(served, json.dumps(described(image)).encode())
    assert served.memory_kb() < 40 << 10


def _connected(served: PlaneProcess) -> socket.socket:
    address = urlsplit(served.url)
    assert address.hostname
    assert address.port
    return socket.create_connection((address.hostname, address.port), timeout=GIVE_UP_S)


def _talk(served: PlaneProcess, data: bytes, step: int = 1 << 20) -> bytes:
    """Sends `data` piece by piece, and returns everything that is received until the end."""
    answer = b""
    with _connected(served) as connection:
        for at in range(0, len(data), step):
            connection.sendall(data[at : at + step])
        while piece := connection.recv(1 << 16):
            answer += piece
    return answer


def test_serves_a_folder_with_several_batch_sizes_as_one_model(tmp_path: Path) -> None:
    layout = OciLayout(tmp_path / "digits")
    for batch in (1, 4):
        compile_sample("digits_uint8.tflite", layout, tmp_path / f"scratch-{batch}", batch)
    with plane([f"digits={layout.root}"]) as process:
        (given,) = httpx.get(f"{process.url}/v2/models/digits").json()["inputs"]
        body, headers = as_binary(
            {given["name"]: np.concatenate(IMAGES[:3])}, {"parameters": {"binary_data_output": True}}
        )
        _, outputs = unpacked(httpx.post(f"{process.url}/v2/models/digits/infer", content=body, headers=headers))
    (answered,) = outputs.values()
    np.testing.assert_array_equal(answered, expected("digits_uint8.tflite")[:3])
