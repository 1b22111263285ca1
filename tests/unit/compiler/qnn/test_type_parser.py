"""The text form of quantized types, which equals MLIR's."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.qnn.type_parser import parse
from service.compiler.qnn.types import (
    STORAGE_RANGES,
    InvalidQuantizedType,
    QuantizedType,
)
from tests.support.examples import examples
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
    # Scales must lie within the range of the expressed type; `SCALES` exceeds that of float16.
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
        ("!quant.uniform<i2:bf16, 0.5:-2>", QuantizedType("int2", (0.5,), (-2,), expressed="bfloat16")),
        ("!quant.uniform<u16:f32, 0.5:65535>", QuantizedType("uint16", (0.5,), (65535,))),
        ("!quant.uniform<i4<-7:7>:f32, 0.5>", QuantizedType("int4", (0.5,), storage_min=-7, storage_max=7)),
        ("!quant.uniform<i12:f16:0, {0.5,0.25}>", QuantizedType("int12", (0.5, 0.25), axis=0, expressed="float16")),
        ("!quant.uniform<u6:f32:{}, {{0.5}}>", QuantizedType("uint6", (0.5,), blocks=(), grid=(1, 1))),
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


def test_mlir_writes_spaces_and_exponents() -> None:
    """The examples are from the description of the dialect."""
    assert parse("!quant.uniform<i8:f32, 9.987200e-01:127>") == QuantizedType("int8", (0.99872,), (127,))
    by_axis = parse("!quant.uniform<i8<-128:127>:f32:1, {2.0:10, 3.0:20}>")
    assert by_axis == QuantizedType("int8", (2.0, 3.0), (10, 20), axis=1)
    blocks = parse("!quant.uniform<u8:f32:{0:1, 1:2}, {{2.0:120, 3.0:127}, {2.0:120, 3.0:127}}>")
    assert blocks.blocks == ((0, 1), (1, 2))
    assert blocks.grid == (2, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected '!quant.uniform<' at column 1, not the end of the text"),
        ("!quant.any<i8:f32>", "expected '!quant.uniform<' at column 1"),
        ("!quant.uniform<i8>", "expected ':' at column 18, not '>'"),
        ("!quant.uniform<i1:f32, 1.0>", "expected a storage type i2 to i16, u2 to u16, i32 or i64 at column 16"),
        ("!quant.uniform<i17:f32, 1.0>", "expected a storage type"),
        ("!quant.uniform<u32:f32, 1.0>", "expected a storage type"),
        ("!quant.uniform<f8:f32, 1.0>", "expected a storage type"),
        ("!quant.uniform<i8:f32, 1.0:10 23>", "expected '>' at column 31, not '23>'"),
        ("!quant.uniform<i8:f32, 1.0> x", "expected the end of the type at column 29, not 'x'"),
        ("!quant.uniform<i8<16>:f32, 1.0>", "expected ':' at column 21"),
        ("!quant.uniform<i8<x:1>:f32, 1.0>", "expected the lower storage bound at column 19"),
        ("!quant.uniform<i8<" + "9" * 5000 + ":1>:f32, 1.0>", "expected the lower storage bound at column 19"),
        ("!quant.uniform<i4<-8:8>:f32, 1.0>", "storage bounds -8:8 do not fit int4"),
        ("!quant.uniform<u6:f32, 1.0:64>", "a zero point is outside the range of uint6"),
        ("!quant.uniform<i8:f32:0, {1.0,2.0>", "expected '}' at column 34"),
        ("!quant.uniform<i8:f32:0, {{1.0},{2.0}}>", "expected a scale at column 27"),
        ("!quant.uniform<i8:f32:0, {}>", "expected a scale at column 27"),
        ("!quant.uniform<i8:f32:0, 1.0>", "expected '{' at column 26"),
        ("!quant.uniform<i8:f32:{0:1,1:1}, {{1.0,2.0},{3.0}}>", "expected lists of equal length"),
        ("!quant.uniform<i8:f32:{0}, {1.0,2.0}>", "expected ':' at column 25"),
        ("!quant.uniform<i8:f32:{0:1}, 1.0>", "expected '{' at column 30"),
        ("!quant.uniform<i8:f32:{0:1}, " + "{" * 40 + "1.0" + "}" * 40 + ">", "at most 16 levels of braces"),
        ("!quant.uniform<i8:f8, 1.0>", "expected an expressed type f16, bf16, f32 or f64 at column 19"),
        ("!quant.uniform<i8:f16, 70000.0>", "a scale is outside the range of float16"),
        ("!quant.uniform<i8:f32, x>", "expected a scale at column 24"),
        ("!quant.uniform<i8:f32, nan>", "expected a scale at column 24"),
        ("!quant.uniform<i8:f32, 1_0.0>", "expected a scale at column 24"),
        ("!quant.uniform<i8:f32, 1.0:\u0663>", "expected a zero point at column 28"),
        ("!quant.uniform<i8:f32, 0.0>", "every scale must be positive and finite"),
        ("!quant.uniform<i8:f32, 1e9999>", "every scale must be positive and finite"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidQuantizedType) as raised:
        parse(text)
    assert message in raised.value.message
    assert len(raised.value.message) < 250


@settings(max_examples=examples(300), deadline=None)
@given(quantized_types(), st.data())
def test_damaged_texts_are_refused_or_parsed(quantized: QuantizedType, data: st.DataObject) -> None:
    text = str(quantized)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    damaged = text[:start] + data.draw(st.text("!quniformxf0123456789.:,-<>{} e", max_size=4)) + text[end:]
    with suppress(InvalidQuantizedType):
        assert parse(str(parse(damaged))) == parse(damaged)
