"""Requests that the native front answers, beside those that it leaves to Python, over one connection."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from service.api.oip.infer import Infer
from tests.support.data_plane import DataPlane, as_binary
from tests.support.runners import FunctionRunner, digits, identity, quantized
from tests.support.tables import Tables
from tests.support.uvicorn_thread import listening
from tests.support.waiting import GIVE_UP_S, WORK_TIMEOUT_S, eventually

PATH = "/v2/models/{}/infer"
BINARY = {"parameters": {"binary_data_output": True}}


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Server:
    """One connection to a server, and how many requests were answered in Python."""

    def __init__(self, tables: Tables, monkeypatch: pytest.MonkeyPatch, **scheduling: Any) -> None:
        self.tables, self.in_python, self.address = tables, 0, ""
        self._connections: list[http.client.HTTPConnection] = []
        self.plane = DataPlane(tables, scheduling=scheduling or None)
        original = Infer.__call__

        async def counted(infer: Infer, *args: Any) -> None:
            self.in_python += 1
            await original(infer, *args)

        monkeypatch.setattr(Infer, "__call__", counted)

    def connect(self) -> http.client.HTTPConnection:
        self._connections.append(http.client.HTTPConnection(self.address, timeout=WORK_TIMEOUT_S))
        return self._connections[-1]

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def ask(self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str], model: str) -> Answer:
        connection.request("POST", PATH.format(model), body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    tables = Tables()
    tables.model("digits", digits)
    server = Server(tables, monkeypatch)
    with listening(server.plane.app) as server.address, closing(server):
        yield server


def picture(value: int = 3, **request: Any) -> tuple[bytes, dict[str, str]]:
    return as_binary({"image": np.full((1, 8, 8, 1), value, np.uint8)}, {**BINARY, **request})


def top(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    return answer.body[-1]


def test_words_that_were_heard_before_do_not_meet_python_again(server: Server) -> None:
    connection = server.connect()
    answers = [server.ask(connection, *picture(value), "digits") for value in (3, 4, 5)]
    assert [top(each) for each in answers] == [3, 4, 5]
    assert server.in_python == 1
    first, second, _ = answers
    assert first.headers["inference-header-content-length"] == second.headers["inference-header-content-length"]
    length = int(first.headers["inference-header-content-length"])
    assert first.body[:length] == second.body[:length]
    assert {name.lower() for name in first.headers} == {name.lower() for name in second.headers}


def test_a_connection_goes_to_who_answers_its_next_request_and_comes_back(server: Server) -> None:
    connection = server.connect()
    server.ask(connection, *picture(1), "digits")
    assert top(server.ask(connection, *picture(2), "digits")) == 2
    named = server.ask(connection, *picture(3, id="mine"), "digits")
    assert json.loads(named.body[: int(named.headers["inference-header-content-length"])])["id"] == "mine"
    assert server.in_python == 2
    connection.request("GET", "/v2/models/digits/ready")
    assert connection.getresponse().read()
    assert top(server.ask(connection, *picture(4), "digits")) == 4
    assert server.in_python == 2


def test_a_newer_version_answers_as_soon_as_it_is_current(server: Server) -> None:
    connection = server.connect()
    server.ask(connection, *picture(1), "digits")
    server.tables.model("digits", lambda: digits(100))
    until = time.monotonic() + GIVE_UP_S
    while top(server.ask(connection, *picture(1), "digits")) != 101:
        assert time.monotonic() < until
    before = server.in_python
    assert top(server.ask(connection, *picture(2), "digits")) == 102
    assert server.in_python == before  # what was learned of the first header is known of this one, too, after its own


def test_all_of_it_is_counted(server: Server) -> None:
    connection = server.connect()
    for value in range(5):
        server.ask(connection, *picture(value), "digits")
    connection.request("GET", "/v2/models/digits/stats")
    (stats,) = json.loads(connection.getresponse().read())["model_stats"]
    assert server.in_python == 1
    assert stats["inference_stats"]["success"]["count"] == stats["inference_count"] == 5


def test_where_keys_are_asked_for_python_looks_at_every_request(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = server.connect()
    for value in (1, 2):
        server.ask(connection, *picture(value), "digits")
    monkeypatch.setattr(server.plane.services.access, "_is_asked", True)
    until = time.monotonic() + GIVE_UP_S
    while (answer := server.ask(connection, *picture(3), "digits")).status == 200:
        assert time.monotonic() < until
    assert answer.status == 401


def test_requests_that_it_refuses_are_answered_as_python_would(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, opened = threading.Semaphore(0), threading.Event()

    def stand_still(x: Any) -> Any:
        entered.release()
        assert opened.wait(GIVE_UP_S)
        if x[0, 0] == 66:
            raise MemoryError("no room for it")
        assert x[0, 0] != 13, "a secret"
        return (x.copy(),)

    tables = Tables()
    tables.model("slow", lambda: FunctionRunner(identity("UINT8", 1, 1).signature, stand_still))
    server = Server(tables, monkeypatch, queue_size=1)

    def body(value: int) -> tuple[bytes, dict[str, str]]:
        return as_binary({"x": np.full((1, 1), value, np.uint8)}, BINARY)

    opened.set()
    with listening(server.plane.app) as server.address, closing(server):
        connections = [server.connect() for _ in range(3)]
        assert top(server.ask(connections[0], *body(1), "slow")) == 1
        failed = server.ask(connections[0], *body(13), "slow")
        assert failed.status == 500
        assert b"secret" not in failed.body
        full = server.ask(connections[0], *body(66), "slow")
        assert (full.status, json.loads(full.body)["code"]) == (503, "memory_full")
        opened.clear()
        for count, connection in enumerate(connections[:2], 1):
            connection.request("POST", PATH.format("slow"), *body(2))
            admitted = f'octet_inflight_requests{{model="slow"}} {count}.0'
            eventually(lambda admitted=admitted: admitted in server.plane.metrics.text().decode())  # type: ignore[misc]
        refused = server.ask(connections[2], *body(3), "slow")
        assert (refused.status, json.loads(refused.body)["code"]) == (429, "queue_full")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-request-id"] == json.loads(refused.body)["request_id"]
        opened.set()
        for connection in connections[:2]:
            assert connection.getresponse().read()[-1] == 2
        assert top(server.ask(connections[2], *body(4), "slow")) == 4  # and the connection lives
    assert server.in_python == 1


def test_a_request_for_real_values_is_never_answered_with_stored_ones(server: Server) -> None:
    server.tables.model("quantized", quantized)
    connection, stored = server.connect(), np.array([[-3, -128, 127, 0]], np.int8)
    plain: dict[str, Any] = {"binary_data_output": True}
    for _ in range(3):
        for parameters, datatype, size in ((plain, b'"INT8"', 4), (plain | {"dequantize": True}, b'"FP32"', 16)):
            request = as_binary({"x": stored}, {"parameters": parameters}, [{"name": "y"}])
            answer = server.ask(connection, *request, "quantized")
            length = int(answer.headers["inference-header-content-length"])
            assert datatype in answer.body[:length]
            assert len(answer.body) - length == size
    assert server.in_python == 1 + 3
