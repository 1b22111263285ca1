"""A request whose inference header is known is answered as it would be the first time."""

from __future__ import annotations

from itertools import permutations
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from service.api.oip import members, parse
from tests.support.data_plane import as_binary, connect, unpacked
from tests.support.runners import affine
from tests.support.tables import Tables

pytestmark = pytest.mark.anyio

PATH = "/v2/models/affine/infer"


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    tables.model("affine", affine)
    return tables


def inputs(seed: int, order: str = "xab") -> dict[str, Any]:
    random = np.random.default_rng(seed)
    values = {
        "x": random.normal(size=(1, 4)).astype(np.float32),
        "a": random.integers(-128, 128, (1, 4), np.int8),
        "b": random.integers(-1000, 1000, (1, 4), np.int64),
    }
    return {name: values[name] for name in order}


@pytest.mark.parametrize("order", ["".join(order) for order in permutations("xab")])
async def test_the_same_words_with_other_tensors_are_not_read_again(tables: Tables, order: str) -> None:
    async with connect(tables) as client:
        for seed in range(3):
            given = inputs(seed, order)
            body, headers = as_binary(given, {"parameters": {"binary_data_output": True}})
            with patch.object(parse, "json_object", wraps=members.json_object) as read:
                response = await client.post(PATH, content=body, headers=headers)
            expected = (given["x"] * given["a"] + given["b"]).astype(np.float32)
            np.testing.assert_array_equal(unpacked(response)[1]["y"], expected)
            assert read.call_count == (seed == 0)


async def test_what_is_wrong_with_a_tensor_is_found_every_time(tables: Tables) -> None:
    good = inputs(0)
    body, headers = as_binary(good)
    spoiled, _ = as_binary({**good, "x": np.full((1, 4), np.nan, np.float32)})
    async with connect(tables) as client:
        for content, status in [(body, 200), (spoiled, 400), (body[:-1], 400), (body + b"x", 400), (body, 200)]:
            assert (await client.post(PATH, content=content, headers=headers)).status_code == status


async def test_a_request_with_a_number_of_its_own_gets_it_back(tables: Tables) -> None:
    async with connect(tables) as client:
        for number in ["1", "2", "2"]:
            body, headers = as_binary(inputs(0), {"id": number})
            assert (await client.post(PATH, content=body, headers=headers)).json()["id"] == number


async def test_more_ways_to_ask_than_are_kept_are_all_answered(tables: Tables) -> None:
    async with connect(tables) as client:
        for number in [*range(70), *range(70)]:
            body, headers = as_binary(inputs(number), {"parameters": {"mine": number}})
            assert (await client.post(PATH, content=body, headers=headers)).status_code == 200
