"""Valid predict requests: JSON and binary data for inputs and outputs, in every combination."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
import pytest

from service.core.models.signature import DATATYPES
from tests.support.data_plane import as_binary, as_json, connect, entry, packed, unpacked
from tests.support.runners import FunctionRunner, affine, digits, failing, identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

IMAGE = np.arange(64, dtype=np.uint8).reshape(1, 8, 8, 1)
COLUMNS = IMAGE.sum(axis=(1, 3))


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("digits", digits)
    tables.model("affine", affine)
    return tables


async def test_json_in_json_out(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post("/v2/models/digits/infer", json={"id": "a-7", **as_json(IMAGE, "image")})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "model_name": "digits",
        "model_version": "1",
        "id": "a-7",
        "outputs": [
            {"name": "columns", "datatype": "INT32", "shape": [1, 8], "data": COLUMNS[0].tolist()},
            {"name": "top", "datatype": "UINT8", "shape": [1], "data": [63]},
        ],
    }


async def test_binary_in_binary_out(tables: Tables) -> None:
    body, headers = as_binary({"image": IMAGE}, {"parameters": {"binary_data_output": True}})
    async with connect(tables) as client:
        response = await client.post("/v2/models/digits/infer", content=body, headers=headers)
    assert response.headers["content-type"] == "application/octet-stream"
    document, arrays = unpacked(response)
    assert "id" not in document
    assert [output["parameters"] for output in document["outputs"]] == [
        {"binary_data_size": 32},
        {"binary_data_size": 1},
    ]
    np.testing.assert_array_equal(arrays["columns"], COLUMNS)
    assert arrays["top"] == 63


async def test_json_nested_like_the_shape(tables: Tables) -> None:
    request = as_json(IMAGE, "image", data=IMAGE.tolist())
    async with connect(tables) as client:
        response = await client.post("/v2/models/digits/infer", json=request)
    assert response.json()["outputs"][0]["data"] == COLUMNS[0].tolist()


async def test_outputs_have_the_requested_order_and_form(tables: Tables) -> None:
    outputs = [{"name": "top", "parameters": {"binary_data": True}}, {"name": "columns"}]
    body, headers = as_binary({"image": IMAGE}, outputs=outputs)
    async with connect(tables) as client:
        document, arrays = unpacked(await client.post("/v2/models/digits/infer", content=body, headers=headers))
    assert [output["name"] for output in document["outputs"]] == ["top", "columns"]
    assert list(arrays) == ["top"]
    assert document["outputs"][1]["data"] == COLUMNS[0].tolist()


async def test_one_output_may_override_the_form_of_all(tables: Tables) -> None:
    body, headers = as_binary(
        {"image": IMAGE},
        {"parameters": {"binary_data_output": True}},
        [{"name": "columns", "parameters": {"binary_data": False}}, {"name": "top"}],
    )
    async with connect(tables) as client:
        document, arrays = unpacked(await client.post("/v2/models/digits/infer", content=body, headers=headers))
    assert list(arrays) == ["top"]
    assert document["outputs"][0]["data"] == COLUMNS[0].tolist()


@pytest.mark.parametrize("names", [["columns"], ["top"]])
async def test_a_subset_of_the_outputs(tables: Tables, names: list[str]) -> None:
    request = {**as_json(IMAGE, "image"), "outputs": [{"name": name} for name in names]}
    async with connect(tables) as client:
        response = await client.post("/v2/models/digits/infer", json=request)
    assert [output["name"] for output in response.json()["outputs"]] == names


async def test_inputs_may_have_any_order_and_form(tables: Tables) -> None:
    x = np.array([[0.5, -1.0, 2.0, 3.0]], np.float32)
    a = np.array([[2, -128, 127, 0]], np.int8)
    b = np.array([[1, 2, 3, -(2**40)]], np.int64)
    document = {
        "inputs": [
            entry("b", b, parameters={"binary_data_size": b.nbytes}),
            {**entry("a", a), "data": a.tolist()},
            entry("x", x, parameters={"binary_data_size": x.nbytes}),
        ]
    }
    body, headers = packed(document, b.tobytes(), x.tobytes())
    async with connect(tables) as client:
        response = await client.post("/v2/models/affine/infer", content=body, headers=headers)
    assert response.json()["outputs"][0]["data"] == (x * a + b).astype(np.float32)[0].tolist()


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("binary", [True, False])
async def test_compressed_bodies(tables: Tables, compress: Any, binary: bool) -> None:
    if binary:
        body, headers = as_binary({"image": IMAGE})
    else:
        body, headers = json.dumps(as_json(IMAGE, "image")).encode(), {}
    headers["Content-Encoding"] = "gzip" if compress is gzip.compress else "deflate"
    async with connect(tables) as client:
        response = await client.post("/v2/models/digits/infer", content=compress(body), headers=headers)
    assert response.json()["outputs"][0]["data"] == COLUMNS[0].tolist()


@pytest.mark.parametrize(
    ("datatype", "values"),
    [
        ("BOOL", [True, False, True]),
        ("UINT8", [0, 1, 255]),
        ("UINT16", [0, 1, 2**16 - 1]),
        ("INT8", [-128, 0, 127]),
        ("INT16", [-(2**15), 0, 2**15 - 1]),
        ("INT32", [-(2**31), 0, 2**31 - 1]),
        ("INT64", [-(2**63), 0, 2**63 - 1]),
        ("FP16", [-65504.0, 0.0999755859375, 5.960464477539063e-08]),
        ("FP32", [-3.4028234663852886e38, 1, 1e-45]),
        ("FP64", [-1.7976931348623157e308, 0.1, 5e-324]),
    ],
)
async def test_every_datatype_is_unchanged_by_json(datatype: str, values: list[Any]) -> None:
    tables = Tables()
    tables.model("identity", lambda: identity(datatype, 1, 3))
    request = {"inputs": [{"name": "x", "datatype": datatype, "shape": [1, 3], "data": values}]}
    async with connect(tables) as client:
        response = await client.post("/v2/models/identity/infer", json=request)
    (output,) = response.json()["outputs"]
    dtype = np.float32 if datatype == "FP32" else None
    np.testing.assert_array_equal(np.array(output["data"], dtype), np.array(values, dtype))
    assert output["datatype"] == datatype


@pytest.mark.parametrize("datatype", DATATYPES)
async def test_every_datatype_is_unchanged_by_binary(datatype: str) -> None:
    tables = Tables()
    tables.model("identity", lambda: identity(datatype, 1, 5, 3))
    (spec,) = identity(datatype, 1, 5, 3).signature.inputs
    values = np.arange(15).reshape(1, 5, 3).astype(spec.dtype)
    parameters = {"binary_data_size": values.nbytes}
    document = {
        "inputs": [{"name": "x", "datatype": datatype, "shape": [1, 5, 3], "parameters": parameters}],
        "parameters": {"binary_data_output": True},
    }
    body, headers = packed(document, values.tobytes())
    async with connect(tables) as client:
        response = await client.post("/v2/models/identity/infer", content=body, headers=headers)
    length = int(response.headers["inference-header-content-length"])
    assert response.content[length:] == values.tobytes()


async def test_the_version_in_the_url_is_used(tables: Tables) -> None:
    tables.built("digits", tables.push("digits"), lambda: digits(bias=100))
    async with connect(tables) as client:
        for url, version, top in [("", "2", 163), ("/versions/1", "1", 63), ("/versions/2", "2", 163)]:
            response = await client.post(f"/v2/models/digits{url}/infer", json=as_json(IMAGE, "image"))
            assert response.json()["model_version"] == version
            assert response.json()["outputs"][1]["data"] == [top]


async def test_inputs_are_aligned() -> None:
    tables = Tables()
    tables.model("look", lambda: identity("UINT8", 1, 7, body="if ((uintptr_t)x % 64) return 1;"))
    array = np.zeros((1, 7), np.uint8)
    body, headers = as_binary({"x": array})
    async with connect(tables) as client:
        for request in ({"content": body, "headers": headers}, {"json": as_json(array)}):
            assert (await client.post("/v2/models/look/infer", **request)).status_code == 200


async def test_infinity_in_an_output_requires_a_binary_response() -> None:
    tables = Tables()
    signature = identity("FP32", 1, 1).signature
    tables.model("infinite", lambda: FunctionRunner(signature, "y[0] = __builtin_inff();"))
    request = as_json(np.zeros((1, 1), np.float32))
    async with connect(tables) as client:
        refused = await client.post("/v2/models/infinite/infer", json=request)
        assert refused.status_code == 422
        assert "binary" in refused.json()["hint"]
        request["parameters"] = {"binary_data_output": True}
        _, arrays = unpacked(await client.post("/v2/models/infinite/infer", json=request))
    assert arrays["y"] == np.inf


async def test_an_unexpected_failure_of_the_model_is_a_500_that_only_the_log_explains(
    tables: Tables, capfd: pytest.CaptureFixture[str]
) -> None:
    tables.model("fails", failing)
    async with connect(tables) as client:
        response = await client.post("/v2/models/fails/infer", json=as_json(np.ones((1, 1), np.uint8)))
        assert response.status_code == 500
        assert "7" not in response.json()["error"]
        response = await client.post("/v2/models/fails/infer", json=as_json(np.zeros((1, 1), np.uint8)))
        assert response.status_code == 200
    assert "a call of fails version 1 failed" in capfd.readouterr().err
