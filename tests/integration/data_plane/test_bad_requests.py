"""Every invalid request gets a 4xx status and the reason, and the next valid request succeeds."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.data_plane import as_binary, as_json, connect, entry, packed
from tests.support.runners import affine, digits, identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

IMAGE = np.zeros((1, 8, 8, 1), np.uint8)
NUMBERS = np.zeros((1, 3), np.float32)
INFER = "/v2/models/digits/infer"


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.model("affine", affine)
    for datatype in ("FP32", "INT8", "INT64", "BOOL"):
        tables.model(datatype.lower(), partial(identity, datatype, 1, 3))
    return tables


async def post(tables: Tables, url: str, **request: Any) -> httpx.Response:
    """Sends a request and returns the response. Then checks that the same server answers a valid request."""
    async with connect(tables, max_predict_bytes=1 << 20) as client:
        response = await client.post(url, **request)
        assert (await client.post(INFER, json=as_json(IMAGE, "image"))).status_code == 200
    return response


def assert_refused(response: httpx.Response, status: int, error: str, tensor: str | None = None) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert error in document["error"]
    assert document["error"] == document["detail"]
    assert document.get("tensor") == tensor


def inputs(**members: Any) -> dict[str, Any]:
    """Returns a request to the digits model, in whose only input `members` are replaced. None removes a member."""
    merged = {**as_json(IMAGE, "image")["inputs"][0], **members}
    return {"inputs": [{name: value for name, value in merged.items() if value is not None}]}


@pytest.mark.parametrize(
    ("request_", "error", "tensor"),
    [
        ([], "[], not a JSON object", None),
        ("text", '"text", not a JSON object', None),
        ({}, "'inputs' is missing", None),
        ({"inputs": {}}, "'inputs' is not an array", None),
        ({"inputs": []}, "input 'image' is missing", "image"),
        ({"inputs": [7]}, "an entry of 'inputs' is not an object with a 'name'", None),
        ({"inputs": [{}]}, "an entry of 'inputs' is not an object with a 'name'", None),
        ({**inputs(), "id": 7}, "'id' is 7, not a string", None),
        ({**inputs(), "parameters": []}, "the 'parameters' of the request are []", None),
        ({**inputs(), "parameters": {"binary_data_output": 1}}, "'binary_data_output' is 1, not true or false", None),
        (inputs(name=7), "an entry of 'inputs' is not an object with a 'name'", None),
        (inputs(name="img"), "the model has no input 'img'", None),
        (inputs(name="i" * 60_000), "the model has no input 'iii", None),
        (inputs(name="\ud800"), "half of a surrogate pair", None),
        ({"inputs": inputs()["inputs"] * 2}, "input 'image' is given twice", "image"),
        (inputs(shape=None), "lacks a 'shape'", "image"),
        (inputs(shape="1,8,8,1"), "lacks a 'shape'", "image"),
        (inputs(shape=[True, 8, 8, 1]), "lacks a 'shape'", "image"),
        (inputs(shape=[1.0, 8, 8, 1]), "lacks a 'shape'", "image"),
        (inputs(shape=[1, 8, 8]), "has shape [1, 8, 8], but the model takes [1, 8, 8, 1]", "image"),
        (inputs(shape=[2, 8, 8, 1]), "has shape [2, 8, 8, 1], but the model takes [1, 8, 8, 1]", "image"),
        (inputs(shape=[1, -8, -8, 1]), "has shape [1, -8, -8, 1]", "image"),
        (inputs(shape=[2**62, 2**62, 2**62, 1]), "but the model takes [1, 8, 8, 1]", "image"),
        (inputs(shape=[1] * 10_000), "too many dimensions", None),
        (inputs(datatype=None), "is sent without a 'datatype', but the model takes UINT8", "image"),
        (inputs(datatype="INT8"), "is sent as 'INT8', but the model takes UINT8", "image"),
        (inputs(datatype="FP16"), "is sent as 'FP16', but the model takes UINT8", "image"),
        (inputs(datatype=["UINT8"]), "is sent without a 'datatype', but the model takes UINT8", "image"),
        (inputs(data=None), "has neither 'data' nor", "image"),
        (inputs(parameters=[]), "the 'parameters' of input 'image' are []", None),
        (inputs(parameters={"binary_data_size": 64}), "has both 'data' and", "image"),
        (inputs(data=None, parameters={"binary_data_size": -1}), "binary_data_size -1", "image"),
        (inputs(data=None, parameters={"binary_data_size": "64"}), "binary_data_size '64'", "image"),
        (inputs(data=None, parameters={"binary_data_size": True}), "binary_data_size true", "image"),
        (inputs(data=None, parameters={"binary_data_size": 64}), "declare 64 bytes of binary data, but 0 follow", None),
        (inputs(parameters={"shared_memory_region": "r"}), "is in shared memory without", "image"),
        (inputs(data={}), "has data that is not an array, but {}", "image"),
        (
            inputs(data=7),
            "has data that is not an array, but 7; a single element is sent as an array too: [7]",
            "image",
        ),
        (inputs(data=[0] * 63), "has 63 elements, but its shape [1, 8, 8, 1] has 64", "image"),
        (inputs(data=[0] * 65), "has 65 elements", "image"),
        (inputs(data=[]), "has 0 elements", "image"),
        (inputs(data=[[0] * 64]), "is not nested like its shape [1, 8, 8, 1], in dimension 2", "image"),
        (inputs(data=[[[[0]] * 8] * 7 + [[[0]] * 7]]), "in dimension 2", "image"),
        (inputs(data=[[[[0]] * 8] * 7 + [0]]), "in dimension 2", "image"),
        (inputs(data=[0] * 63 + [[0]]), "is not nested", "image"),
        (inputs(data=[0] * 63 + [256]), "holds 256, but UINT8 goes from 0 to 255", "image"),
        (inputs(data=[0] * 63 + [-1]), "holds -1, but UINT8 goes from 0 to 255", "image"),
        (inputs(data=[0] * 63 + [10**30]), "but UINT8 goes from 0 to 255", "image"),
        (inputs(data=[0] * 63 + [1.5]), "holds 1.5, but takes whole numbers", "image"),
        (inputs(data=[0] * 63 + [True]), "holds true, but takes whole numbers", "image"),
        (inputs(data=[0] * 63 + ["0"]), 'holds "0", but takes whole numbers', "image"),
        (inputs(data=[0] * 63 + [None]), "holds null, but takes whole numbers", "image"),
        ({**inputs(), "outputs": {}}, "'outputs' is not an array", None),
        ({**inputs(), "outputs": [7]}, "an entry of 'outputs' is not an object", None),
        ({**inputs(), "outputs": [{"name": "bottom"}]}, "the model has no output 'bottom'", None),
        ({**inputs(), "outputs": [{"name": "top"}] * 2}, "output 'top' is requested twice", "top"),
        ({**inputs(), "outputs": [{"name": "top", "parameters": {"binary_data": "yes"}}]}, "is 'yes'", None),
        (
            {**inputs(), "outputs": [{"name": "top", "parameters": {"classification": -3}}]},
            "'classification' is -3",
            None,
        ),
        (
            {**inputs(), "outputs": [{"name": "top", "parameters": {"shared_memory_region": ""}}]},
            "is in shared memory without",
            "top",
        ),
    ],
)
async def test_json_that_does_not_fit(tables: Tables, request_: Any, error: str, tensor: str | None) -> None:
    assert_refused(await post(tables, INFER, content=json.dumps(request_)), 400, error, tensor)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "not well-formed JSON"),
        (b"{", "not well-formed JSON"),
        (b'{"inputs": [}', "not well-formed JSON"),
        (b"\xff\xfe", "not well-formed JSON"),
        (b'{"id": "\xff"}', "not well-formed JSON"),
        (b"[" * 60_000, "not well-formed JSON"),
        (b'{"inputs": ' + b"9" * 60_000 + b"}", "'inputs' is not an array"),
        (json.dumps(inputs()).encode().replace(b"0, 0]", b"0, NaN]"), "NaN is not JSON"),
        (json.dumps(inputs()).encode().replace(b"0, 0]", b"0, Infinity]"), "Infinity is not JSON"),
        (json.dumps(inputs()).encode().replace(b"0, 0]", b"0, -Infinity]"), "Infinity is not JSON"),
        # raw data without the header that gives its length
        (json.dumps(inputs()).encode() + b"\0" * 64, "not well-formed JSON"),
    ],
)
async def test_invalid_json(tables: Tables, content: bytes, error: str) -> None:
    assert_refused(await post(tables, INFER, content=content), 400, error)


@pytest.mark.parametrize("number", ["1e39", "-1e39", "1e999", "3.5e38", "1" + "0" * 400])
async def test_json_numbers_outside_of_float32(tables: Tables, number: str) -> None:
    content = json.dumps(as_json(NUMBERS)).replace("0.0]", number + "]")
    assert number in content
    response = await post(tables, "/v2/models/fp32/infer", content=content)
    assert_refused(response, 400, "input 'x' holds a number outside the range of FP32", "x")


@pytest.mark.parametrize(
    ("datatype", "value", "error"),
    [
        ("FP32", "1", 'holds "1", but takes numbers'),
        ("FP32", True, "holds true, but takes numbers"),
        ("INT8", 128, "holds 128, but INT8 goes from -128 to 127"),
        ("INT64", 2**63, f"holds {2**63}, but INT64 goes"),
        ("INT64", -(2**63) - 1, f"holds {-(2**63) - 1}, but INT64 goes"),
        ("BOOL", 1, "holds 1, but takes true and false"),
    ],
)
async def test_json_values_that_the_datatype_does_not_have(
    tables: Tables, datatype: str, value: Any, error: str
) -> None:
    request = {"inputs": [{"name": "x", "datatype": datatype, "shape": [1, 3], "data": [value] * 3}]}
    response = await post(tables, f"/v2/models/{datatype.lower()}/infer", json=request)
    assert_refused(response, 400, error, "x")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
async def test_binary_floats_that_are_not_finite(tables: Tables, value: float) -> None:
    body, headers = as_binary({"x": np.array([[0, value, 0]], np.float32)})
    response = await post(tables, "/v2/models/fp32/infer", content=body, headers=headers)
    assert_refused(response, 400, "input 'x' holds NaN or infinity", "x")


async def test_binary_booleans_that_are_neither_0_nor_1(tables: Tables) -> None:
    document = {"inputs": [entry("x", np.zeros((1, 3), bool), parameters={"binary_data_size": 3})]}
    body, headers = packed(document, b"\x00\x01\x02")
    response = await post(tables, "/v2/models/bool/infer", content=body, headers=headers)
    assert_refused(response, 400, "input 'x' holds bytes other than 0 and 1", "x")


def binary_image(size: int) -> dict[str, Any]:
    return {"inputs": [entry("image", IMAGE, parameters={"binary_data_size": size})]}


@pytest.mark.parametrize(
    ("document", "blob", "error", "tensor"),
    [
        (binary_image(64), bytes(63), "declare 64 bytes of binary data, but 63 follow", None),
        (binary_image(64), bytes(65), "declare 64 bytes of binary data, but 65 follow", None),
        (binary_image(63), bytes(63), "declares 63 bytes of binary data, but its shape and datatype make 64", "image"),
        (binary_image(2**62), bytes(64), f"has binary_data_size {2**62}", "image"),
        (inputs(), bytes(1), "declare 0 bytes of binary data, but 1 follow", None),
        (
            inputs(data=None, datatype="FP16", parameters={"binary_data_size": 8}),
            bytes(8),
            "is sent as 'FP16'",
            "image",
        ),
    ],
)
async def test_binary_data_with_a_wrong_size(
    tables: Tables, document: Any, blob: bytes, error: str, tensor: str | None
) -> None:
    body, headers = packed(document, blob)
    assert_refused(await post(tables, INFER, content=body, headers=headers), 400, error, tensor)


@pytest.mark.parametrize(
    ("length", "error"),
    [
        ("many", "is not a length in bytes"),
        ("-1", "is not a length in bytes"),
        ("1.5", "is not a length in bytes"),
        ("", "is not a length in bytes"),
        ("\u00b2", "is not a length in bytes"),
        ("9" * 5000, "is not a length in bytes"),
        ("1000000", "but the body has"),
        ("10", "not well-formed JSON"),
    ],
)
async def test_the_length_of_the_json_must_be_right(tables: Tables, length: str, error: str) -> None:
    body, _ = as_binary({"image": IMAGE})
    headers = {b"Inference-Header-Content-Length": length.encode("latin-1")}
    assert_refused(await post(tables, INFER, content=body, headers=headers), 400, error)


@pytest.mark.parametrize("media_type", ["text/plain", "application/pdf", "application/x-www-form-urlencoded"])
async def test_a_body_of_another_type_is_refused_with_the_types_to_send(tables: Tables, media_type: str) -> None:
    response = await post(tables, INFER, content=b"a text", headers={"Content-Type": media_type})
    assert_refused(response, 415, f"the body is not JSON, and its Content-Type is {media_type[:13]!r}"[:-1])
    assert "image/jpeg" in response.json()["hint"]
    inputless = await post(tables, INFER, content=b'{"image": "abc"}')
    assert_refused(inputless, 400, "'inputs' is missing")
    assert "/predict takes pictures" in inputless.json()["hint"]


async def test_two_different_lengths(tables: Tables) -> None:
    body, _ = as_binary({"image": IMAGE})
    headers = [("Inference-Header-Content-Length", "1"), ("Inference-Header-Content-Length", "2")]
    assert_refused(await post(tables, INFER, content=body, headers=headers), 400, "twice")


@pytest.mark.parametrize("missing", ["x", "a", "b"])
async def test_each_missing_input_is_named(tables: Tables, missing: str) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "x": np.zeros((1, 4), np.float32),
        "a": np.zeros((1, 4), np.int8),
        "b": np.zeros((1, 4), np.int64),
    }
    del arrays[missing]
    body, headers = as_binary(arrays)
    response = await post(tables, "/v2/models/affine/infer", content=body, headers=headers)
    assert_refused(response, 400, f"input {missing!r} is missing", missing)


async def test_a_request_larger_than_the_limit_is_rejected(tables: Tables) -> None:
    assert_refused(await post(tables, INFER, content=bytes((1 << 20) + 1)), 413, "larger than 1048576 bytes")


async def test_a_body_without_a_length_is_rejected_when_it_exceeds_the_limit(tables: Tables) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(1 << 19)

    async with connect(tables, max_predict_bytes=1 << 20) as client:
        assert_refused(await client.post(INFER, content=pieces()), 413, "larger than 1048576 bytes")
        assert (await client.post(INFER, json=as_json(IMAGE, "image"))).status_code == 200


async def test_more_json_than_the_model_needs_is_rejected(tables: Tables) -> None:
    request = {**inputs(), "padding": " " * 100_000}
    assert_refused(await post(tables, INFER, content=json.dumps(request)), 413, "bytes of JSON")


async def test_indented_json_with_all_digits_is_accepted() -> None:
    tables = Tables()
    tables.model("big", lambda: identity("FP32", 1, 100, 100))
    array = np.full((1, 100, 100), -1.1754943508222875e-38, np.float32)
    async with connect(tables) as client:
        content = json.dumps(as_json(array, data=array.tolist()), indent=4)
        assert (await client.post("/v2/models/big/infer", content=content)).status_code == 200


@pytest.mark.parametrize(
    ("encoding", "body", "status", "error"),
    [
        ("br", b"", 415, "encoding 'br'"),
        ("gzip, gzip", b"", 415, "encoding 'gzip, gzip'"),
        ("br, identity", b"", 415, "content encoding 'br'"),
        ("gzip", b"no gzip", 400, "not well-formed gzip"),
        ("deflate", b"no zlib", 400, "not well-formed deflate"),
        ("gzip", b"", 400, "ends too early"),
        ("gzip", gzip.compress(b"{}", mtime=0)[:-1], 400, "ends too early"),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"more", 400, "4 bytes follow its end"),
        ("gzip", 2 * gzip.compress(b"{}", mtime=0)[:-1], 400, "not well-formed gzip"),
        ("gzip", gzip.compress(b"{}", mtime=0) + b"\x1f\x8b", 400, "ends too early"),
        ("gzip", gzip.compress(b"{}", mtime=0) + bytes(8), 400, "8 bytes follow its end"),
        ("deflate", 2 * zlib.compress(b"{}"), 400, "bytes follow its end"),
        ("gzip", 65 * gzip.compress(bytes(16 << 10)), 413, "larger than 1048576 bytes"),
        ("gzip", gzip.compress(bytes(64 << 20)), 413, "larger than 1048576 bytes"),
        ("deflate", zlib.compress(bytes((1 << 20) + 1)), 413, "larger than 1048576 bytes"),
    ],
)
async def test_bad_compression(tables: Tables, encoding: str, body: bytes, status: int, error: str) -> None:
    response = await post(tables, INFER, content=body, headers={"Content-Encoding": encoding})
    assert_refused(response, status, error)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("/v2/models/cats/infer", "no model 'cats'"),
        ("/v2/models/digits/versions/2/infer", "no version 2"),
        ("/v2/models/digits/versions/0/infer", "no version 0"),
        ("/v2/models/digits/versions/one/infer", "no alias 'one'"),
        ("/v2/models/digits/versions/-1/infer", "no such version"),
        (f"/v2/models/digits/versions/{'9' * 5000}/infer", "no such version"),
        ("/v2/models/digits/versions/\u00b2/infer", "no such version"),
    ],
)
async def test_models_and_versions_that_do_not_exist(tables: Tables, url: str, error: str) -> None:
    assert_refused(await post(tables, url, json=inputs()), 404, error)


async def test_an_unbuilt_model_has_no_retry_after(tables: Tables) -> None:
    tables.push("empty")
    response = await post(tables, "/v2/models/empty/infer", json=inputs())
    assert_refused(response, 503, "model 'empty' has not been built")
    assert "retry-after" not in response.headers


@pytest.mark.parametrize(
    ("path", "methods", "allowed"),
    [
        (INFER, ("GET", "HEAD", "PUT", "DELETE"), "POST"),
        ("/v2/models/digits", ("POST", "PUT", "DELETE"), "GET, HEAD"),
        ("/v2/models/digits/versions/1/ready", ("POST",), "GET, HEAD"),
        ("/v2/health/live", ("POST",), "GET, HEAD"),
        ("/v2", ("POST",), "GET, HEAD"),
    ],
)
async def test_other_methods(tables: Tables, path: str, methods: tuple[str, ...], allowed: str) -> None:
    async with connect(tables) as client:
        for method in methods:
            response = await client.request(method, path)
            assert (response.status_code, response.headers["allow"]) == (405, allowed)
            if method != "HEAD":
                assert_refused(response, 405, f"{path} does not accept {method}")


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}, {"Transfer-Encoding": "chunked"}], ids=str)
async def test_an_empty_request_to_a_model_that_is_not_loaded_yet(tables: Tables, headers: dict[str, str]) -> None:
    assert (await post(tables, "/v2/models/affine/infer", content=b"", headers=headers)).status_code == 400
