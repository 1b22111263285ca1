"""The greatest elements of an output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.oip.classification import classes_of
from service.core.errors import Unsupported


def texts(output: Any, count: int, is_batched: bool = False) -> list[str]:
    return classes_of("y", np.asarray(output), count, is_batched).texts


@given(st.lists(st.integers(-128, 127), min_size=1, max_size=40), st.integers(1, 50))
def test_they_are_those_of_a_sort(scores: list[int], count: int) -> None:
    wanted = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:count]
    assert texts(np.array(scores, np.int8), count) == [f"{scores[index]}:{index}" for index in wanted]


def test_a_score_is_the_shortest_text_of_what_is_stored() -> None:
    assert texts(np.array([[0.1, -3.0, 1e-9]], np.float32), 3) == ["0.1:0", "1e-09:2", "-3.0:1"]
    assert texts(np.array([[200, 3]], np.uint8), 1) == ["200:0"]
    assert texts([[False, True]], 2) == ["1:1", "0:0"]


def test_of_a_batch_each_sample_has_its_own() -> None:
    found = classes_of("y", np.array([[1, 2, 3], [6, 5, 4]], np.int32), 2, is_batched=True)
    assert (found.shape, found.texts) == ((2, 2), ["3:2", "2:1", "6:0", "5:1"])


def test_without_batches_the_output_is_one_row() -> None:
    found = classes_of("y", np.array([[1, 2, 3], [6, 5, 4]], np.int32), 9, is_batched=False)
    assert found.shape == (6,)
    assert found.texts[0] == "6:3"


def test_a_text_follows_its_length() -> None:
    assert classes_of("y", np.array([12, 5]), 2, is_batched=False).packed() == b"\4\0\0\x0012:0\3\0\0\x005:1"


def test_nan_has_no_rank() -> None:
    with pytest.raises(Unsupported, match="'y' holds NaN"):
        texts(np.array([1, np.nan], np.float32), 1)
