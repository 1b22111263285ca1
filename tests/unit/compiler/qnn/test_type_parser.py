"""The text form of quantized types, which equals MLIR's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.compiler.qnn.type_parser import parse
from service.compiler.qnn.types import (
    STORAGE_RANGES,
    InvalidQuantizedType,
    QuantizedType,
)
from tests.support.quantized_types import SCALES, blocks


@st.composite
def quantized_types(draw: st.DrawFn) -> QuantizedType:
    storage = draw(st.sampled_from(sorted(STORAGE_RANGES)))
    low, high = STORAGE_RANGES[storage]
    granularity = draw(st.sampled_from(["tensor", "axis", "blocks"]))
    sizes, grid = draw(blocks()) if granularity == "blocks" else (None, ())
    count = draw(st.integers(1, 4)) if granularity == "axis" else math.prod(grid)
    scales = tuple(draw(st.lists(SCALES, min_size=count, max_size=count)))
    axis = draw(st.integers(0, 3)) if granularity == "axis" else None
    zero_points = tuple(draw(st.integers(low, high)) for _ in scales)
    lowest, highest = sorted(draw(st.sets(st.integers(low, high), min_size=2, max_size=2)))
    expressed = draw(st.sampled_from(["float32", "float64", "bfloat16"]))
    return QuantizedType(storage, scales, zero_points, axis, lowest, highest, expressed, sizes, grid)


@given(quantized_types())
def test_text_form_is_read_back_exactly(quantized: QuantizedType) -> None:
    assert parse(str(quantized)) == quantized


@pytest.mark.parametrize(
    ("text", "quantized"),
    [
        ("!quant.uniform<i8:f32, 0.5>", QuantizedType("int8", (0.5,))),
        ("!quant.uniform<u8:f32, 0.5:128>", QuantizedType("uint8", (0.5,), (128,))),
        ("!quant.uniform<u4:f16, 0.5:15>", QuantizedType("uint4", (0.5,), (15,), expressed="float16")),
        (
            "!quant.uniform<i8:f32:{0:2,1:3}, {{0.5,0.25:3},{1.0,2.0}}>",
            QuantizedType("int8", (0.5, 0.25, 1.0, 2.0), (0, 3, 0, 0), blocks=((0, 2), (1, 3)), grid=(2, 2)),
        ),
        (
            "!quant.uniform<i8<-127:127>:f32:0, {0.5,0.25:3}>",
            QuantizedType("int8", (0.5, 0.25), (0, 3), axis=0, storage_min=-127, storage_max=127),
        ),
    ],
)
def test_the_text_form_equals_mlir(text: str, quantized: QuantizedType) -> None:
    assert str(quantized) == text
    assert parse(text) == quantized


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!quant.uniform<i8>",
        "!quant.uniform<i3:f32, 1.0>",
        "!quant.uniform<i8:f32, 1.0:10 23>",
        "!quant.uniform<i8<16>:f32, 1.0>",
        "!quant.uniform<i8:f32:0, {1.0,2.0>",
        "!quant.uniform<i8:f32:0, {{1.0},{2.0}}>",
        "!quant.uniform<i8:f32:0, {}>",
        "!quant.uniform<i8:f32:{0:1,1:1}, {{1.0,2.0},{3.0}}>",
        "!quant.uniform<i8:f32:{0}, {1.0,2.0}>",
        "!quant.uniform<i8:f32:{0:1}, " + "{" * 40 + "1.0" + "}" * 40 + ">",
        "!quant.uniform<i8:f8, 1.0>",
        "!quant.uniform<i8:f32:0, 1.0>",
        "!quant.uniform<i8:f32, x>",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuantizedType):
        parse(text)
