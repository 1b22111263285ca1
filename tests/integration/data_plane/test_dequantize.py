"""The parameter `dequantize` returns real values instead of stored integers."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.data_plane import as_binary, as_json, connect, unpacked
from tests.support.runners import quantized
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

PATH = "/v2/models/quantized/infer"
STORED = np.array([[-3, -128, 127, 0]], np.int8)
REAL = [[0.0, -62.5, 65.0, 1.5]]  # 0.5 * (stored + 3)
PARAMETERS = {"parameters": {"dequantize": True}}
BINARY = {"parameters": {"dequantize": True, "binary_data_output": True}}


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("quantized", quantized)
    return tables


async def ask(tables: Tables, **request: Any) -> httpx.Response:
    async with connect(tables) as client:
        response = await client.post(PATH, json={**as_json(STORED), **request})
    assert response.status_code == 200, response.text
    return response


async def test_a_quantized_output_has_real_values_and_the_same_shape(tables: Tables) -> None:
    first, _ = (await ask(tables, **PARAMETERS)).json()["outputs"]
    assert first == {"name": "y", "datatype": "FP32", "shape": [1, 4], "data": REAL[0]}


async def test_an_output_that_is_not_quantized_is_unchanged(tables: Tables) -> None:
    plain, real = [(await ask(tables, **request)).json()["outputs"][1] for request in ({}, PARAMETERS)]
    assert plain == real


async def test_a_single_output_may_be_dequantized(tables: Tables) -> None:
    (only,) = (await ask(tables, outputs=[{"name": "y", **PARAMETERS}])).json()["outputs"]
    assert only["data"] == REAL[0]


async def test_an_output_may_be_excluded(tables: Tables) -> None:
    outputs = [{"name": "y", "parameters": {"dequantize": False}}]
    (only,) = (await ask(tables, outputs=outputs, **PARAMETERS)).json()["outputs"]
    assert (only["datatype"], only["data"]) == ("INT8", STORED[0].tolist())


async def test_the_scores_of_classes_are_real_values_too(tables: Tables) -> None:
    best = [{"name": "y", "parameters": {"classification": 2}}]
    (only,) = (await ask(tables, outputs=best, **PARAMETERS)).json()["outputs"]
    assert only["data"] == ["65.0:2", "1.5:3"]


async def test_binary_outputs_are_float32(tables: Tables) -> None:
    async with connect(tables) as client:
        for _ in range(3):  # the response is the same each time
            body, headers = as_binary({"x": STORED}, BINARY)
            document, arrays = unpacked(await client.post(PATH, content=body, headers=headers))
            assert document["outputs"][0]["datatype"] == "FP32"
            assert arrays["y"].tolist() == REAL


async def test_a_value_that_is_not_a_boolean_is_rejected(tables: Tables) -> None:
    async with connect(tables) as client:
        response = await client.post(PATH, json={**as_json(STORED), "parameters": {"dequantize": "yes"}})
    assert response.status_code == 400
    assert "'dequantize' is 'yes'" in response.json()["error"]
