"""QuantizedType: MLIR's rules and text form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.qnn.types import (
    STORAGE_RANGES,
    InvalidQuantizedType,
    QuantizedType,
    accumulator_type,
    parse,
)

SCALES = st.floats(2.0**-60, 2.0**60, width=32)


@st.composite
def quantized_types(draw: st.DrawFn) -> QuantizedType:
    storage = draw(st.sampled_from(sorted(STORAGE_RANGES)))
    low, high = STORAGE_RANGES[storage]
    scales = tuple(draw(st.lists(SCALES, min_size=1, max_size=4)))
    axis = draw(st.none() | st.integers(0, 3)) if len(scales) == 1 else draw(st.integers(0, 3))
    zero_points = tuple(draw(st.integers(low, high)) for _ in scales)
    lowest, highest = sorted(draw(st.sets(st.integers(low, high), min_size=2, max_size=2)))
    return QuantizedType(storage, scales, zero_points, axis, lowest, highest)


@given(quantized_types())
def test_text_form_is_read_back_exactly(quantized: QuantizedType) -> None:
    assert parse(str(quantized)) == quantized


@pytest.mark.parametrize(
    ("text", "quantized"),
    [
        ("!quant.uniform<i8:f32, 0.5>", QuantizedType("int8", (0.5,))),
        ("!quant.uniform<u8:f32, 0.5:128>", QuantizedType("uint8", (0.5,), (128,))),
        (
            "!quant.uniform<i8<-127:127>:f32:0, {0.5,0.25:3}>",
            QuantizedType("int8", (0.5, 0.25), (0, 3), axis=0, storage_min=-127, storage_max=127),
        ),
    ],
)
def test_text_form_is_that_of_mlir(text: str, quantized: QuantizedType) -> None:
    assert str(quantized) == text
    assert parse(text) == quantized


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
        (("int8", (1.0,), (128,)), "zero point lies outside int8"),
        (("uint8", (1.0,), (-1,)), "zero point lies outside uint8"),
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
    "text",
    [
        "",
        "!quant.uniform<i8>",
        "!quant.uniform<i4:f32, 1.0>",
        "!quant.uniform<i8:f32:0, 1.0>",
        "!quant.uniform<i8:f32, x>",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuantizedType):
        parse(text)


@given(SCALES, st.lists(SCALES, min_size=1, max_size=4))
def test_accumulator_scales_are_exact_products(scale: float, weights: list[float]) -> None:
    found = accumulator_type(
        QuantizedType("uint8", (scale,), (9,)), QuantizedType("int8", tuple(weights), axis=0), axis=3
    )
    assert found.axis == 3
    assert found.zero_points == (0,) * len(weights)
    # 24 + 24 bits of significand fit 53: the float64 product is exact, so rounding it to float32 rounds once.
    for product, weight in zip(found.scales, weights, strict=True):
        assert np.float32(product) == np.float32(scale) * np.float32(weight)
