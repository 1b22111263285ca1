"""On one connection, the data plane answers some requests and the control plane answers others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import numpy as np
import pytest

from tests.support.data_plane import DataPlane, as_binary, serving
from tests.support.runners import digits, quantized
from tests.support.tables import Tables
from tests.support.waiting import WORK_TIMEOUT_S, eventually

BINARY = {"parameters": {"binary_data_output": True}}


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.model("quantized", quantized)
    return tables


@pytest.fixture
def connection(tables: Tables) -> Iterator[HTTPConnection]:
    with serving(DataPlane(tables)) as address, closing(HTTPConnection(address, timeout=WORK_TIMEOUT_S)) as connection:
        yield connection


def ask(
    connection: HTTPConnection, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[HTTPResponse, bytes]:
    """Sends a request. Returns the response, which leaves the connection open, and its body."""
    connection.request(method, path, body, headers or {})
    kept, response = connection.sock, connection.getresponse()
    content = response.read()
    assert connection.sock is kept is not None
    return response, content


def infer(connection: HTTPConnection, model: str, body: bytes, headers: dict[str, str]) -> tuple[dict[str, Any], bytes]:
    """Sends a predict request. Returns the JSON of the response, and its binary tensors."""
    response, content = ask(connection, "POST", f"/v2/models/{model}/infer", body, headers)
    assert response.status == 200, content
    length = int(response.headers["inference-header-content-length"])
    return json.loads(content[:length]), content[length:]


def top(connection: HTTPConnection, value: int, **request: Any) -> int:
    """Returns the class that the model predicts for a picture whose pixels all have one value."""
    picture = as_binary({"image": np.full((1, 8, 8, 1), value, np.uint8)}, {**BINARY, **request})
    document, data = infer(connection, "digits", *picture)
    assert document.get("id") == request.get("id")
    return data[-1]


def test_each_request_on_a_connection_goes_to_the_plane_that_answers_it(connection: HTTPConnection) -> None:
    for value in (1, 2, 3):
        assert top(connection, value) == value
        assert top(connection, value, id="mine") == value
        response, content = ask(connection, "POST", "/v2/repository/index", b"{}")
        assert (response.status, {each["name"] for each in json.loads(content)}) == (200, {"digits", "quantized"})
        assert ask(connection, "GET", "/v2/models/digits/ready")[0].status == 200
        assert b"octet_requests_total" in ask(connection, "GET", "/metrics")[1]


def test_a_newer_version_answers_as_soon_as_it_is_current(tables: Tables, connection: HTTPConnection) -> None:
    assert top(connection, 1) == 1
    tables.built("digits", tables.push("digits"), lambda: digits(100))
    eventually(lambda: top(connection, 1) == 101)
    assert top(connection, 2) == 102


def test_a_request_for_real_values_never_gets_stored_integers(connection: HTTPConnection) -> None:
    stored = np.array([[-3, -128, 127, 0]], np.int8)
    for _ in range(3):
        for real, datatype, size in ((False, "INT8", 4), (True, "FP32", 16)):
            parameters = {"binary_data_output": True, "dequantize": real}
            request = as_binary({"x": stored}, {"parameters": parameters}, [{"name": "y"}])
            document, data = infer(connection, "quantized", *request)
            assert (document["outputs"][0]["datatype"], len(data)) == (datatype, size)
