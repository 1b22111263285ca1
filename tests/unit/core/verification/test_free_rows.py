"""Outputs with a number of rows that depends on the data."""

from __future__ import annotations

import numpy as np

from service.core.models.arrays import Array
from service.core.models.signature import ModelSignature, TensorSpec
from service.core.verification.free_rows import fill_rows

BOXES = TensorSpec("boxes", "INT64", (4, 3))
SCORES = TensorSpec("scores", "FP32", (1, 4))
COUNTS = (TensorSpec("boxes.count", "INT64", (1,)), TensorSpec("scores.count", "INT64", (1,)))
FREE = ModelSignature((), (BOXES, SCORES, *COUNTS))


def test_missing_rows_are_filled_and_counted() -> None:
    outputs: list[Array] = [np.ones((2, 3), np.int64), np.ones((1, 2), np.float32)]
    boxes, scores, *counts = fill_rows(outputs, FREE)
    np.testing.assert_array_equal(boxes, [[1, 1, 1], [1, 1, 1], [-1, -1, -1], [-1, -1, -1]])
    np.testing.assert_array_equal(scores, [[1, 1, 0, 0]])
    assert [int(count[0]) for count in counts] == [2, 2]


def test_all_rows_may_count() -> None:
    outputs: list[Array] = [np.ones((4, 3), np.int64), np.ones((1, 4), np.float32)]
    assert [int(count[0]) for count in fill_rows(outputs, FREE)[2:]] == [4, 4]


def test_no_row_may_count() -> None:
    outputs: list[Array] = [np.ones((0, 3), np.int64), np.ones((1, 0), np.float32)]
    boxes, _, *counts = fill_rows(outputs, FREE)
    assert (boxes == -1).all()
    assert [int(count[0]) for count in counts] == [0, 0]


def test_other_outputs_are_unchanged() -> None:
    outputs: list[Array] = [np.ones((2, 3), np.int64)]
    (same,) = fill_rows(outputs, ModelSignature((), (BOXES,)))
    assert same is outputs[0]


def test_outputs_that_do_not_fit_are_unchanged() -> None:
    outputs: list[Array] = [np.ones((9, 3), np.int64), np.ones((1, 2), np.float32)]
    assert [each.shape for each in fill_rows(outputs, FREE)] == [(9, 3), (1, 2)]
