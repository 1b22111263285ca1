"""The classification extension returns the largest elements of an output as text."""

from __future__ import annotations

from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.data_plane import as_json, connect
from tests.support.runners import identity
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio


def tables_of(array: np.ndarray[Any, Any]) -> Tables:
    datatype = {"int8": "INT8", "int32": "INT32", "float32": "FP32", "uint8": "UINT8", "bool": "BOOL"}[array.dtype.name]
    tables = Tables()
    tables.model("m", lambda: identity(datatype, *array.shape))
    return tables


async def classify(client: httpx.AsyncClient, array: np.ndarray[Any, Any], count: int, **request: Any) -> Any:
    outputs = [{"name": "y", "parameters": {"classification": count}}]
    response = await client.post("/v2/models/m/infer", json={**as_json(array), "outputs": outputs, **request})
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]


async def test_the_classes_are_those_of_a_sort() -> None:
    random = np.random.default_rng(0)
    async with connect(tables_of(np.zeros((1, 40), np.int8))) as client:
        for _ in range(30):
            scores = random.integers(-4, 4, (1, 40), np.int8)
            count = int(random.integers(1, 50))
            order = sorted(range(40), key=lambda index, row=scores[0]: (-row[index], index))[:count]  # type: ignore[misc]
            output = await classify(client, scores, count)
            assert output["data"] == [f"{scores[0, index]}:{index}" for index in order]
            assert output["datatype"] == "BYTES"


@pytest.mark.parametrize(
    ("scores", "count", "expected"),
    [
        (np.array([[0.1, -3.0, 1e-9]], np.float32), 3, ["0.1:0", "1e-09:2", "-3.0:1"]),
        (np.array([[200, 3]], np.uint8), 1, ["200:0"]),
        (np.array([[False, True]]), 2, ["1:1", "0:0"]),
    ],
    ids=lambda each: str(each),
)
async def test_a_score_is_the_shortest_text_of_the_stored_value(
    scores: np.ndarray[Any, Any], count: int, expected: list[str]
) -> None:
    async with connect(tables_of(scores)) as client:
        assert (await classify(client, scores, count))["data"] == expected


async def test_without_batches_the_output_is_one_row() -> None:
    scores = np.array([[1, 2, 3], [6, 5, 4]], np.int32)
    async with connect(tables_of(scores)) as client:
        output = await classify(client, scores, 9)
    assert output["shape"] == [6]
    assert output["data"][0] == "6:3"


async def test_binary_text_has_a_length_prefix() -> None:
    scores = np.array([[12, 5]], np.int32)
    outputs = [{"name": "y", "parameters": {"classification": 2, "binary_data": True}}]
    async with connect(tables_of(scores)) as client:
        response = await client.post("/v2/models/m/infer", json={**as_json(scores), "outputs": outputs})
    length = int(response.headers["inference-header-content-length"])
    assert response.content[length:] == b"\4\0\0\x0012:0\3\0\0\x005:1"


async def test_nan_is_not_ranked() -> None:
    tables = Tables()
    tables.model("m", lambda: identity("FP32", 1, 2, body='y[0] = __builtin_nanf(""); return 0;'))
    outputs = [{"name": "y", "parameters": {"classification": 1}}]
    async with connect(tables) as client:
        request = {**as_json(np.zeros((1, 2), np.float32)), "outputs": outputs}
        response = await client.post("/v2/models/m/infer", json=request)
    assert response.status_code == 422
    assert "'y' contains NaN" in response.json()["error"]
