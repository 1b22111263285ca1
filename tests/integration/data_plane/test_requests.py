"""Requests in the queue and in transit: deadlines, priorities, rejections, and clients that disconnect early."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
from tritonclient import grpc as triton
from tritonclient.utils import InferenceServerException

from tests.support.gates import Gate
from tests.support.plane_models import LENGTH, WIDE, bare_plane, held, sleeping, wide
from tests.support.plane_process import PlaneProcess
from tests.support.waiting import GIVE_UP_S, eventually

MODEL, HELD = "/v2/models/sleeping", "/v2/models/held"
QUEUE, STALL_S = 4, 1.0
HOLD = -1  # the first element of an input at which the model `held` stops until its gate is opened


@pytest.fixture(scope="module")
def gate() -> Gate:
    """The gate of the model `held`: a call with the input HOLD stops until the test opens the gate."""
    return Gate()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, gate: Gate) -> Iterator[PlaneProcess]:
    folder = tmp_path_factory.mktemp("requests")
    rules = {"queue_size": QUEUE, "max_wait_s": 10 * GIVE_UP_S, "levels": 3}
    loads = [sleeping(folder, 1, **rules), wide(folder, 2), held(folder, 3, gate, **rules)]
    with bare_plane(folder, loads, stall_timeout_s=STALL_S) as process:
        yield process


@pytest.fixture
def client(served: PlaneProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=GIVE_UP_S) as opened:
        yield opened


def body_of(first: int = 0, **members: Any) -> dict[str, Any]:
    entry = {"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": [first] * LENGTH}
    return {"inputs": [entry], **members}


def ask(
    client: httpx.Client, first: int = 0, headers: dict[str, str] | None = None, model: str = MODEL, **members: Any
) -> Any:
    return client.post(f"{model}/infer", json=body_of(first, **members), headers=headers)


def executions(client: httpx.Client) -> int:
    """Returns how often the model `held` was executed."""
    (stats,) = client.get(f"{HELD}/stats").json()["model_stats"]
    count: int = stats["execution_count"]
    return count


@contextmanager
def occupied(client: httpx.Client, gate: Gate) -> Iterator[None]:
    """Keeps the only instance of `held` computing until the block ends."""
    gate.close()
    with ThreadPoolExecutor(1) as pool:
        before = gate.entered
        running = pool.submit(ask, client, HOLD, model=HELD)
        try:
            gate.wait_running(before + 1)
            yield
            assert not running.done()
        finally:
            gate.open()
        assert running.result().status_code == 200


@contextmanager
def connected(served: PlaneProcess, receive_bytes: int = 0) -> Iterator[socket.socket]:
    address = urlsplit(served.url)
    with socket.socket() as connection:
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(GIVE_UP_S)
        connection.connect((address.hostname, address.port))
        yield connection


def request(first: int, version: str = "1.1", model: str = MODEL, **members: Any) -> bytes:
    body = json.dumps(body_of(first, **members)).encode()
    head = f"POST {model}/infer HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def all_of(connection: socket.socket) -> bytes:
    answer = b""
    while piece := connection.recv(1 << 16):
        answer += piece
    return answer


def settle(client: httpx.Client) -> None:
    """Waits until the data plane has handled all earlier events. One thread handles the events of all clients in turn,
    so a response shows that earlier events were handled.
    """
    for _ in range(10):
        executions(client)


# --- The queue


def test_a_full_queue_responds_with_retry_after(served: PlaneProcess, client: httpx.Client, gate: Gate) -> None:
    def over_grpc() -> str:
        with triton.InferenceServerClient(served.grpc) as other:
            try:
                other.infer("held", [tensor()])
            except InferenceServerException as error:
                return str(error.status())
        return "OK"

    with ThreadPoolExecutor(4 * QUEUE) as pool:
        with occupied(client, gate):
            calls = [pool.submit(over_grpc) for _ in range(2 * QUEUE)]
            answers = [pool.submit(ask, client, model=HELD) for _ in range(2 * QUEUE)]
            eventually(lambda: sum(each.done() for each in (*calls, *answers)) == 3 * QUEUE)  # the others wait
        statuses = [each.result() for each in calls]
        refused = [each.result() for each in answers if each.result().status_code != 200]
    assert all(each.status_code == 429 and int(each.headers["retry-after"]) >= 1 for each in refused)
    assert {each.json()["code"] for each in refused} <= {"queue_full"}
    assert set(statuses) <= {"OK", "StatusCode.RESOURCE_EXHAUSTED"}
    assert len(refused) + statuses.count("StatusCode.RESOURCE_EXHAUSTED") == 3 * QUEUE
    assert ask(client, model=HELD).status_code == 200


def tensor(first: int = 0) -> Any:
    tensor_input = triton.InferInput("in0", [1, LENGTH], "INT32")
    tensor_input.set_data_from_numpy(np.full((1, LENGTH), first, np.int32))
    return tensor_input


@pytest.mark.parametrize(
    ("headers", "parameters"),
    [({"octet-timeout-ms": "100"}, {}), ({}, {"timeout": 100_000})],
    ids=["header", "parameter"],
)
def test_a_deadline_ends_the_wait(
    client: httpx.Client, gate: Gate, headers: dict[str, str], parameters: dict[str, int]
) -> None:
    with occupied(client, gate):
        late = ask(client, headers=headers, model=HELD, parameters=parameters)
        assert (late.status_code, late.json()["code"]) == (504, "deadline_passed")


def test_a_deadline_ends_the_wait_over_grpc(served: PlaneProcess, client: httpx.Client, gate: Gate) -> None:
    with occupied(client, gate), triton.InferenceServerClient(served.grpc) as other:
        with pytest.raises(InferenceServerException, match="DEADLINE_EXCEEDED"):
            other.infer("held", [tensor()], timeout=100_000)
        with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
            other.infer("held", [tensor()], client_timeout=0.1)


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "", "9" * 30])
def test_an_invalid_deadline_is_rejected(client: httpx.Client, value: str) -> None:
    answer = ask(client, headers={"octet-timeout-ms": value})
    assert answer.status_code == 400
    assert "Octet-Timeout-Ms" in answer.json()["detail"]


def test_urgent_requests_are_first(served: PlaneProcess, client: httpx.Client, gate: Gate) -> None:
    with ExitStack() as stack:
        waiting = [stack.enter_context(connected(served)) for _ in range(3)]
        with occupied(client, gate):
            for priority, each in zip((3, 2, 1), waiting, strict=True):
                each.sendall(request(-priority, "1.0", HELD, parameters={"priority": priority}))
                settle(client)
        for each in waiting:
            assert all_of(each).startswith(b"HTTP/1.1 200 OK")
    assert gate.seen[-3:] == [-1, -2, -3]


# --- The wire


def test_head_has_no_body(served: PlaneProcess) -> None:
    with connected(served) as connection:
        for path in (MODEL, "/v2", "/v2/health/live", "/nothing"):
            connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        *heads, body = all_of(connection).split(b"\r\n\r\n")
    assert [head.split(b" ", 2)[1] for head in heads] == [b"200", b"200", b"200", b"404", b"200"]
    assert body == b'{"live":true}'


def test_a_slow_reader_gets_all_responses_in_order(served: PlaneProcess) -> None:
    count = 60
    pieces = []
    for index in range(count):
        entry = {"name": "in0", "datatype": "INT32", "shape": [1, WIDE], "parameters": {"binary_data_size": 4 * WIDE}}
        head = json.dumps({"id": f"n{index}", "inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
        values = np.full(WIDE, index, np.int32).tobytes()
        pieces.append(
            b"POST /v2/models/wide/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
            b"Inference-Header-Content-Length: %d\r\nConnection: %s\r\n\r\n%s%s"
            % (len(head) + len(values), len(head), b"close" if index == count - 1 else b"keep-alive", head, values)
        )
    received = b""
    with connected(served, receive_bytes=4096) as connection:
        sending = threading.Thread(target=connection.sendall, args=(b"".join(pieces),))
        sending.start()
        while piece := connection.recv(10_000):
            received += piece
            time.sleep(0.001)
        sending.join()
    for index in range(count):
        head, _, received = received.partition(b"\r\n\r\n")
        lengths = {line.split(b":")[0]: int(line.split(b":")[1]) for line in head.split(b"\r\n") if b"length" in line}
        body, received = received[: lengths[b"content-length"]], received[lengths[b"content-length"] :]
        document = json.loads(body[: lengths[b"inference-header-content-length"]])
        assert document["id"] == f"n{index}"
        assert body[lengths[b"inference-header-content-length"] :] == np.full(WIDE, 2 * index, np.int32).tobytes()
    assert received == b""


def test_a_half_closed_client_is_answered(served: PlaneProcess) -> None:
    with connected(served) as connection:
        connection.sendall(request(300))
        connection.shutdown(socket.SHUT_WR)
        answer = all_of(connection)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    with connected(served) as connection:
        connection.sendall(request(300, "1.0"))
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_all_requests_of_a_half_closed_client_are_answered(served: PlaneProcess) -> None:
    with connected(served) as connection:
        connection.sendall(request(50) * 3)
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection).count(b"HTTP/1.1 200 OK") == 3


def test_half_closing_within_a_request_ends_the_connection(served: PlaneProcess) -> None:
    with connected(served) as connection:
        connection.sendall(request(0)[:-10])
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection) == b""


def test_a_half_closed_client_waits_no_longer_than_others(
    served: PlaneProcess, client: httpx.Client, gate: Gate
) -> None:
    with occupied(client, gate), connected(served) as connection:
        connection.sendall(request(0, model=HELD))
        connection.shutdown(socket.SHUT_WR)
        assert all_of(connection) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert ask(client, model=HELD).status_code == 200


def test_the_request_of_a_client_that_left_is_not_computed(
    served: PlaneProcess, client: httpx.Client, gate: Gate
) -> None:
    before = executions(client)
    with occupied(client, gate):
        with connected(served) as connection:
            connection.sendall(request(0, model=HELD))
            settle(client)
        # The client has closed both directions of the connection.
        settle(client)
    assert ask(client, model=HELD).status_code == 200
    assert executions(client) == before + 2


# --- The syntax of JSON

DATA = json.dumps([5] * LENGTH)
ODD = [
    ('{"inputs":[{"\\u006eame":"i\\u006e0","shape":[1,16],"datatype":"INT32","data":%s}]}', 200),
    ('\n\t {"inputs" : [ { "name":"in0", "shape": [1,16], "datatype":"INT32" , "data" : %s } ] }\r\n', 200),
    ('{"more":{"a":[{}]},"inputs":[{"x":null,"name":"in0","shape":[1,16],"datatype":"INT32","data":%s}]}', 200),
    (
        '{"id":null,"parameters":null,"outputs":null,"inputs":[{"name":"in0","shape":[1,16],"datatype":"INT32","data":%s}]}',
        200,
    ),
    ('{"inputs":[],"inputs":[{"name":"in0","shape":[1,16],"datatype":"INT32","data":%s}]}', 200),
    ('{"inputs":[{"name":"in0","shape":[1,16],"datatype":"INT32","data":%s},]}', 400),
    ('{"inputs":[{"name":"in0","shape":[1,16],"datatype":"INT32","data":%s}]} x', 400),
    ('\ufeff{"inputs":[{"name":"in0","shape":[1,16],"datatype":"INT32","data":%s}]}', 400),
    ("{'inputs':[{'name':'in0','shape':[1,16],'datatype':'INT32','data':%s}]}", 400),
    ('{"inputs":[{"name":"in0","shape":[1,16.0],"datatype":"INT32","data":%s}]}', 400),
    ('{"inputs":[{"name":"in0","shape":[1,-16],"datatype":"INT32","data":%s}]}', 400),
    ('{"inputs":[{"name":"in0","shape":[1,99999999999999999999],"datatype":"INT32","data":%s}]}', 400),
    ('{"inputs":[{"name":"in0","shape":[],"datatype":"INT32","data":%s}]}', 400),
    ('{"inputs":[{"name":"in0","shape":[1,16],"datatype":"INT32","data":%s,"parameters":7}]}', 400),
    ('{"inputs":[{"name":"\\ud800","shape":[1,16],"datatype":"INT32","data":%s}]}', 400),
    ('{"inputs":[{"name":"in0\n","shape":[1,16],"datatype":"INT32","data":%s}]}', 400),
    ('{"inputs":[{"name":"in0","shape":[1,16],"datatype":"int32","data":%s}]}', 400),
    ('{"inputs":[{"name":"in0","name":"in0","shape":[1,16],"datatype":"INT32","data":%s}], "parameters":[]}', 400),
]


@pytest.mark.parametrize(("text", "status"), ODD, ids=range(len(ODD)))
def test_json(client: httpx.Client, text: str, status: int) -> None:
    answer = client.post(f"{MODEL}/infer", content=(text % DATA).encode())
    assert answer.status_code == status, answer.text
    if status == 200:
        assert answer.json()["outputs"][0]["data"] == [10] * LENGTH
    else:
        assert answer.json()["detail"]


ELEMENTS = [
    ("5, -5", 2, True),
    ("5e0", 1, False),
    ("5.0", 1, False),
    ("-0, 0", 2, True),
    ("00", 1, False),
    ("+1", 1, False),
    (".5", 1, False),
    ("5.5", 1, False),
    ("2147483647, -2147483648", 2, True),
    ("2147483648", 1, False),
    ("1e400", 1, False),
    ("NaN", 1, False),
    ("true", 1, False),
    ("null", 1, False),
    ('"5"', 1, False),
    ("[5]", 1, False),
    ("[]", 0, False),
    ("[" * 40 + "5" + "]" * 40, 1, False),
    ("5,", 1, False),
]


@pytest.mark.parametrize(("elements", "count", "is_taken"), ELEMENTS, ids=range(len(ELEMENTS)))
def test_elements(client: httpx.Client, elements: str, count: int, is_taken: bool) -> None:
    """The tested elements come after zeros, because the first element determines how long the model sleeps."""
    zeros = ", ".join(["0"] * (LENGTH - count))
    entry = f'{{"name":"in0","shape":[1,16],"datatype":"INT32","data":[{zeros}, {elements}]}}'
    text = f'{{"inputs":[{entry}]}}'
    answer = client.post(f"{MODEL}/infer", content=text.encode())
    assert answer.status_code == (200 if is_taken else 400), answer.text


# --- Requested outputs


@pytest.mark.parametrize(
    ("outputs", "detail"),
    [
        ([{"name": "out1"}], "the model has no output 'out1'"),
        ([{"name": "out0"}, {"name": "out0"}], "output 'out0' is requested twice"),
        ([{"name": "out0", "parameters": {"classification": -1}}], "'classification' is -1"),
        ([{"name": "out0", "parameters": {"binary_data": 1}}], "'binary_data' is 1"),
        ([{}], "an entry of 'outputs' is not an object with a 'name'"),
        ({}, "'outputs' is not an array"),
    ],
)
def test_unknown_outputs_are_rejected(client: httpx.Client, outputs: Any, detail: str) -> None:
    answer = ask(client, outputs=outputs)
    assert answer.status_code == 400
    assert detail in answer.json()["detail"]


def test_classification_over_grpc_and_json_agree(served: PlaneProcess, client: httpx.Client) -> None:
    values = [0, 9, 3, 9, -7, *range(LENGTH - 5)]
    entry = {"name": "in0", "datatype": "INT32", "shape": [1, LENGTH], "data": values}
    outputs = [{"name": "out0", "parameters": {"classification": 3}}]
    (output,) = client.post(f"{MODEL}/infer", json={"inputs": [entry], "outputs": outputs}).json()["outputs"]
    assert output == {"name": "out0", "datatype": "BYTES", "shape": [3], "data": ["20:15", "18:1", "18:3"]}
    tensor_input = triton.InferInput("in0", [1, LENGTH], "INT32")
    tensor_input.set_data_from_numpy(np.array([values], np.int32))
    with triton.InferenceServerClient(served.grpc) as other:
        wanted = triton.InferRequestedOutput("out0", class_count=3)
        answer = other.infer("sleeping", [tensor_input], outputs=[wanted])
    assert [each.decode() for each in answer.as_numpy("out0")] == output["data"]


@pytest.mark.parametrize("id_", ["mine", "ä €", "", "x" * 10_000])
def test_ids_are_returned(served: PlaneProcess, client: httpx.Client, id_: str) -> None:
    assert ask(client, id=id_).json()["id"] == id_
    with triton.InferenceServerClient(served.grpc) as other:
        assert other.infer("sleeping", [tensor()], request_id=id_).get_response().id == id_


def test_a_header_contains_the_request_id(client: httpx.Client) -> None:
    assert ask(client, headers={"x-request-id": "mine.1_2-3"}).headers["x-request-id"] == "mine.1_2-3"
    for unusable in (b"two words", b"x" * 129, b"\xe4"):
        answer = client.post(f"{MODEL}/infer", json=body_of(), headers=[(b"x-request-id", unusable)])
        assert len(answer.headers["x-request-id"]) == 32
