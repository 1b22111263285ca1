"""Tests of the reader of safetensors files."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from service.compiler.importers.published.safetensors import read_tensors
from service.core.errors import InvalidInput
from tests.support.published_model import safetensors


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_tensors_become_float32(dtype: Any) -> None:
    values = np.array([[1.5, -2], [0, 4]], dtype)
    found = read_tensors(safetensors({"a": values, "b": values[0]}), "x")
    assert found["a"].dtype == np.float32
    assert found["a"].tolist() == values.tolist()
    assert found["b"].tolist() == [1.5, -2]


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    header = json.dumps({"a": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode()
    data = len(header).to_bytes(8, "little") + header + b"\xc0\x3f"
    assert read_tensors(data, "x")["a"].tolist() == [1.5]


@pytest.mark.parametrize(
    "header",
    [
        [],
        {"a": 5},
        {"a": {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4]}},
        {"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}},
    ],
)
def test_a_header_that_does_not_fit_the_file_is_refused(header: Any) -> None:
    text = json.dumps(header).encode()
    with pytest.raises(InvalidInput):
        read_tensors(len(text).to_bytes(8, "little") + text + bytes(4), "x")


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, (1 << 62).to_bytes(8, "little") + b"{}", b"\x02" + bytes(7) + b"{"])
def test_a_length_beyond_the_file_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        read_tensors(data, "x")
