"""Inputs that a program passes are written to a file, one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.core.errors import InvalidInput
from service.quantize.calibration.arrays import write_inputs


def stored_arrays(inputs: Iterable[Any], folder: Path, most: int = 100) -> dict[str, np.ndarray[Any, Any]]:
    write_inputs(inputs, folder / "inputs", most)
    assert [path.name for path in folder.iterdir()] == ["inputs"]  # the files for single arrays are deleted
    with np.load(folder / "inputs", allow_pickle=False) as archive:
        return dict(archive)


def test_arrays_are_stacked(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 3, 5)).astype(np.float32)
    np.testing.assert_array_equal(stored_arrays(rows, tmp_path, 2000)["input"], rows)


def test_each_name_has_an_array(tmp_path: Path) -> None:
    inputs = [{"ids": np.array([n, 2]), "/net/a:0": np.float32(n)} for n in range(3)]
    arrays = stored_arrays(inputs, tmp_path)
    assert arrays["ids"].tolist() == [[0, 2], [1, 2], [2, 2]]
    assert arrays["/net/a:0"].tolist() == [0, 1, 2]
    assert arrays["ids"].dtype == np.int64


def test_columns_and_foreign_byte_orders_are_kept(tmp_path: Path) -> None:
    row = np.asfortranarray(np.arange(6).reshape(2, 3).astype(">i4"))
    np.testing.assert_array_equal(stored_arrays([row, row], tmp_path)["input"], [row, row])


def test_only_the_first_inputs_are_read(tmp_path: Path) -> None:
    numbers = iter(np.arange(10))
    assert stored_arrays(numbers, tmp_path, 4)["input"].tolist() == [0, 1, 2, 3]
    assert next(numbers) == 4


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "the calibration set has no inputs"),
        ({"x": np.zeros(3)}, "input 0 of the calibration set is a str"),
        ([(np.zeros(3), 1)], "input 0 of the calibration set is a tuple"),
        ([np.array(["a"])], "the calibration set has dtype <U1 in 'input'"),
        ([np.array([None])], "the calibration set has dtype object in 'input'"),
        ([np.zeros(3), np.zeros(4)], r"input 1 .* is float64\[4\] in 'input', but the first one is float64\[3\]"),
        ([np.zeros(3), np.zeros(3, int)], r"input 1 .* is int64\[3\] in 'input'"),
        ([{"x": np.zeros(1)}, {"y": np.zeros(1)}], "input 1 .* has the arrays 'y', but the first one has 'x'"),
    ],
)
def test_unusable_inputs(inputs: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        write_inputs(inputs, tmp_path / "inputs", 10)
