"""QuantizedType follows the rules of MLIR, and prints and parses MLIR's text form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.qnn.types import (
    EXPRESSED_RANGES,
    InvalidQuantizedType,
    QuantizedType,
    accumulator_type,
)
from tests.support.quantized_types import SCALES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("float16", (1.0,)), "float16 cannot store"),
        (("int8", ()), "one scale, not 0"),
        (("int8", (1.0, 2.0)), "one scale, not 2"),
        (("int8", (0.0,)), "positive and finite"),
        (("int8", (-1.0,)), "positive and finite"),
        (("int8", (math.inf,)), "positive and finite"),
        (("int8", (math.nan,)), "positive and finite"),
        (("int8", (1.0,), (128,)), "zero point is outside the range of int8"),
        (("uint8", (1.0,), (-1,)), "zero point is outside the range of uint8"),
        (("int3", (1.0,), (4,)), "zero point is outside the range of int3"),
        (("int17", (1.0,)), "int17 cannot store"),
        (("uint12", (1.0,), (0,), None, 0, 4096), "do not fit uint12"),
        (("int8", (1.0, 2.0), (0, 0, 0), 0), "2 scales but 3 zero points"),
        (("int8", (1.0,), (0,), -1), "dimension -1 is negative"),
        (("int8", (1.0,), (0,), None, -129, 127), "do not fit int8"),
        (("int8", (1.0,), (0,), None, 5, 5), "do not fit int8"),
    ],
)
def test_rules_of_the_dialect(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidQuantizedType, match=message):
        QuantizedType(*arguments)


@pytest.mark.parametrize(
    ("storage", "bits", "dtype", "limits"),
    [
        ("int2", 2, "int8", (-2, 1)),
        ("uint2", 2, "uint8", (0, 3)),
        ("int4", 4, "int8", (-8, 7)),
        ("uint7", 7, "uint8", (0, 127)),
        ("int8", 8, "int8", (-128, 127)),
        ("int9", 9, "int16", (-256, 255)),
        ("uint12", 12, "uint16", (0, 4095)),
        ("int16", 16, "int16", (-32768, 32767)),
        ("int32", 32, "int32", (-(2**31), 2**31 - 1)),
    ],
)
def test_a_tensor_holds_any_width_in_the_next_larger_type(
    storage: str, bits: int, dtype: str, limits: tuple[int, int]
) -> None:
    quantized = QuantizedType(storage, (1.0,))
    assert (quantized.bits, quantized.dtype, (quantized.min, quantized.max)) == (bits, dtype, limits)


@pytest.mark.parametrize(
    ("blocks", "grid", "scales", "message"),
    [
        (((0, 2),), (), 1, "dimension 0 is outside the 0 dimensions"),
        (((1, 2),), (2,), 2, "dimension 1 is outside the 1 dimensions"),
        (((0, 0),), (2,), 2, "block size 0 of dimension 0 is not positive"),
        (((0, 2), (0, 2)), (2,), 2, "two block sizes"),
        (((0, 2),), (2, 3), 6, "3 blocks along dimension 1, which has no block size"),
        (((0, 2),), (2,), 3, "3 scales do not fit a grid of"),
        (None, (2,), 1, "without blocks"),
    ],
)
def test_rules_of_blocks(blocks: Any, grid: tuple[int, ...], scales: int, message: str) -> None:
    with pytest.raises(InvalidQuantizedType, match=message):
        QuantizedType("int8", (1.0,) * scales, blocks=blocks, grid=grid)
    with pytest.raises(InvalidQuantizedType, match="not both"):
        QuantizedType("int8", (1.0,), axis=0, blocks=((0, 1),), grid=(1,))


@pytest.mark.parametrize("expressed", sorted(EXPRESSED_RANGES))
def test_scales_must_lie_within_the_expressed_type(expressed: str) -> None:
    least, most = EXPRESSED_RANGES[expressed]
    QuantizedType("int8", (least,), expressed=expressed)
    QuantizedType("int8", (most,), expressed=expressed)
    for outside in (least / 2, most * 2):
        with pytest.raises(InvalidQuantizedType, match=r"a scale is outside|positive and finite"):
            QuantizedType("int8", (outside,), expressed=expressed)


_AXIS = QuantizedType("int8", (1.0, 2.0), axis=1)
_BLOCKS = QuantizedType("int8", (1.0, 2.0, 3.0, 4.0), blocks=((0, 2), (1, 3)), grid=(2, 2))


@pytest.mark.parametrize(
    ("quantized", "shape", "message"),
    [
        (QuantizedType("int8", (1.0,)), (), None),
        (QuantizedType("int8", (1.0,)), (None, 3), None),
        (_AXIS, (5, 2), None),
        (_AXIS, (None, 2), None),
        (_AXIS, (5, None), None),
        (_AXIS, (), "a scalar cannot be quantized per axis"),
        (_AXIS, (2,), "axis 1 is outside the shape [2]"),
        (_AXIS, (None, 3), "2 scales do not fit 3 indices of axis 1"),
        (_BLOCKS, (4, 6), None),
        (_BLOCKS, (None, 6), None),
        (_BLOCKS, (), "a scalar cannot be quantized in blocks"),
        (_BLOCKS, (4, 6, 1), "a grid of 2 dimensions does not fit the shape [4, 6, 1]"),
        (_BLOCKS, (4, 7), "2 blocks of 3 do not fit 7 elements of dimension 1"),
        (_BLOCKS, (6, None), "2 blocks of 2 do not fit 6 elements of dimension 0"),
    ],
)
def test_the_shapes_that_a_type_allows(
    quantized: QuantizedType, shape: tuple[int | None, ...], message: str | None
) -> None:
    assert quantized.misfit(shape) == message


@given(SCALES, st.lists(SCALES, min_size=1, max_size=4))
def test_accumulator_scales_are_exact_products(scale: float, weights: list[float]) -> None:
    found = accumulator_type(
        QuantizedType("uint8", (scale,), (9,)), QuantizedType("int8", tuple(weights), axis=0), axis=3
    )
    assert found.axis == 3
    assert found.zero_points == (0,) * len(weights)
    # The product of two 24-bit significands fits the 53 bits of float64. It is exact, so converting it to float32
    # rounds only once.
    for product, weight in zip(found.scales, weights, strict=True):
        assert np.float32(product) == np.float32(scale) * np.float32(weight)
