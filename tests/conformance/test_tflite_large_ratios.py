"""Scales of inputs and outputs with such a large ratio that LiteRT's kernels shift an int32 by 31 bits or more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE
from service.core.errors import UnsupportedOperator
from tests.support.conformance import assert_equals_litert
from tests.support.tflite_builder import ModelBuilder, Quant

BYTES = np.arange(256, dtype=np.uint8)
OPTIONS: dict[str, Any] = {
    "ABS": None,
    "LEAKY_RELU": schema.LeakyReluOptionsT(alpha=0.3),
    "MEAN": schema.ReducerOptionsT(keepDims=True),
    "QUANTIZE": None,
    "RELU": None,
    "RSQRT": None,
}


def unary(name: str, x: Quant, y: Quant, options: Any) -> bytes:
    builder, axes = ModelBuilder(), name == "MEAN"
    operands = [builder.tensor("x", (4, 64), np.int8, x)]
    if axes:
        operands.append(builder.constant("axes", np.array([1], np.int32)))
    result = builder.tensor("y", (4, 1) if axes else (4, 64), np.int8, y)
    builder.operator(name, operands, [result], options)
    return builder.build(operands[:1], [result])


@pytest.mark.parametrize("exponent", [29, 30, 31, 32, 35, 44])
@pytest.mark.parametrize("name", OPTIONS)
def test_shifts_wrap_as_in_litert(name: str, exponent: int) -> None:
    point = -128 if name == "RSQRT" else -5
    data = unary(name, Quant(0.0213, point), Quant(0.0213 / (1.3 * 2.0**exponent), 9), OPTIONS[name])
    samples = [[np.roll(BYTES, first).view(np.int8).reshape(4, 64)] for first in (0, 100)]
    assert_equals_litert(data, LITERT_REFERENCE, samples)


@pytest.mark.parametrize("exponent", [-40, -34, -33, -32, 33])
def test_a_reciprocal_root_is_divided_by_any_power_as_in_litert(exponent: int) -> None:
    data = unary("RSQRT", Quant(1.7 * 2.0**20, -128), Quant(2.0 ** (-exponent - 30), -65), None)
    assert_equals_litert(data, LITERT_REFERENCE, [[BYTES.view(np.int8).reshape(4, 64)]])


@pytest.mark.parametrize("exponent", [-40, -20, 3, 8, 16, 25, 31, 40])
def test_quotients_of_any_scale_equal_litert(exponent: int) -> None:
    builder, point = ModelBuilder(), 131
    x = builder.tensor("x", (256, 1), np.uint8, Quant(0.7, 90))
    z = builder.tensor("z", (1, 255), np.uint8, Quant(0.013, point))
    y = builder.tensor("y", (256, 255), np.uint8, Quant(0.7 / 0.013 / (1.1 * 2.0**exponent), 77))
    builder.operator("DIV", [x, z], [y], schema.DivOptionsT())
    divisors = np.delete(BYTES, point).reshape(1, 255)
    assert_equals_litert(builder.build([x, z], [y]), LITERT_REFERENCE, [[BYTES.reshape(256, 1), divisors]])


@pytest.mark.parametrize(
    ("name", "x", "y", "message"),
    [
        ("HARD_SWISH", Quant(3.0e8, 3), Quant(2.0e9, 7), "shifts an int32 by 34 bits"),
        ("SQRT", Quant(0.5, -128), Quant(1e-9, 7), "converts a root to int32"),
    ],
)
def test_what_cplusplus_leaves_undefined_is_refused(name: str, x: Quant, y: Quant, message: str) -> None:
    module = import_model(unary(name, x, y, None)).module
    with pytest.raises(UnsupportedOperator, match=message):
        oracle.run(module, get_mode(LITERT_REFERENCE), [BYTES.view(np.int8).reshape(4, 64)])
