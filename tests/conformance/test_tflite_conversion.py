"""QUANTIZE of real values that do not fit 32 bits, compared with LiteRT. x86 converts them, and NaN, to -2**31. The
zero point is then added in 32 bits.
"""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.core.builds.numerics import LITERT_REFERENCE
from tests.support.conformance import assert_equals_litert, assert_oracle_equals_litert
from tests.support.tflite_builder import ModelBuilder, Quant
from tests.support.tflite_operator import End, operator_model

REALS = np.array([0, 1, -1, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e9, -1e9], np.float32)
LIMITS = np.array([2147483392, 2147483520, 2147483648, -2147483520, -2147483648, -2147483904], np.float32)
POINTS = {np.int8: (-128, -3, 0, 127), np.uint8: (0, 3, 127, 128, 255), np.int16: (0,)}


@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0**-10])
@pytest.mark.parametrize(("dtype", "zero_point"), [(dtype, point) for dtype in POINTS for point in POINTS[dtype]])
def test_quotients_beyond_32_bits_equal_litert(dtype: type, zero_point: int, scale: float) -> None:
    x = np.concatenate([REALS, LIMITS * np.float32(scale)])
    data = operator_model("QUANTIZE", [End(x.shape, np.float32)], [End(x.shape, dtype, Quant(scale, zero_point))])
    assert_equals_litert(data, LITERT_REFERENCE, [[x]])


@pytest.mark.parametrize("zero_point", [-5, 5])
def test_the_logarithm_of_zero_equals_litert(zero_point: int) -> None:
    """The operators are those that converters write: DEQUANTIZE, LOG of real values, QUANTIZE."""
    builder, shape = ModelBuilder(), (256,)
    x, y = (
        builder.tensor("x", shape, np.int8, Quant(0.05, 3)),
        builder.tensor("y", shape, np.int8, Quant(1, zero_point)),
    )
    real, logarithm = (builder.tensor(name, shape, np.float32) for name in ("real", "logarithm"))
    builder.operator("DEQUANTIZE", [x], [real])
    builder.operator("LOG", [real], [logarithm])
    builder.operator("QUANTIZE", [logarithm], [y], schema.QuantizeOptionsT())
    every = np.arange(-128, 128).astype(np.int8)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_equals_litert(builder.build([x], [y]), LITERT_REFERENCE, [[every]])


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("name", ["QUANTIZE", "DEQUANTIZE"])
def test_activations_quantized_per_axis_are_converted_as_litert_converts_them(
    name: str, dtype: type, axis: int
) -> None:
    shape = (2, 3, 4)
    quant = Quant([0.1 * (i + 1) for i in range(shape[axis])], [5 * i for i in range(shape[axis])], axis)
    real, stored = End(shape, np.float32), End(shape, dtype, quant)
    ends = (real, stored) if name == "QUANTIZE" else (stored, real)
    assert_oracle_equals_litert(operator_model(name, ends[:1], ends[1:]), samples=2)
