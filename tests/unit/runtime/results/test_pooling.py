"""Tests of the pooling of tokens."""

from __future__ import annotations

import numpy as np
import pytest

from service.core.models.text import Pooling
from service.runtime.results.pooling import pool

TOKENS = np.array([[1, -2], [3, 4], [5, 13]], np.float32)


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        (Pooling.MEAN, [3, 5]),
        (Pooling.MAX, [5, 13]),
        (Pooling.CLS, [1, -2]),
        (Pooling.LAST, [5, 13]),
        (Pooling.MEAN_SQRT, [np.float32(9) / np.sqrt(np.float32(3)), np.float32(15) / np.sqrt(np.float32(3))]),
        (Pooling.WEIGHTED_MEAN, [np.float32(22) / 6, np.float32(45) / 6]),
    ],
)
def test_each_way_combines_the_tokens(way: Pooling, expected: list[float]) -> None:
    found = pool(TOKENS, [way])
    assert found.dtype == np.float32
    assert found.tolist() == np.array(expected, np.float32).tolist()


@pytest.mark.parametrize("way", list(Pooling))
def test_a_single_token_is_its_own_vector(way: Pooling) -> None:
    assert pool(TOKENS[:1], [way]).tolist() == TOKENS[0].tolist()


def test_the_vectors_of_several_ways_are_joined_in_their_order() -> None:
    assert pool(TOKENS, [Pooling.LAST, Pooling.CLS]).tolist() == [5, 13, 1, -2]


def test_sums_add_the_tokens_in_order() -> None:
    tokens = np.array([[1e8, 0], [1, 0], [-1e8, 0], [1, 0]], np.float32)
    assert pool(tokens, [Pooling.MEAN])[0] == 0.25  # 1e8 + 1 is 1e8 in float32
