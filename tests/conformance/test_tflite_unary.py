"""Functions of one 8-bit value, compared with LiteRT in both modes, for all 256 values and random scales and zero
points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.models.arrays import Array
from tests.support.conformance import assert_equals_litert
from tests.support.examples import examples
from tests.support.litert import MODES
from tests.support.tflite_builder import Quant
from tests.support.tflite_operator import unary_model

CASES = examples(25)
Options = Callable[[np.random.Generator], Any]


def leaky(rng: np.random.Generator) -> Any:
    return schema.LeakyReluOptionsT(alpha=float(rng.choice([0.01, 0.1, 0.2, 0.3, 1.5, -0.25])))


def gelu(rng: np.random.Generator) -> Any:
    return schema.GeluOptionsT(approximate=bool(rng.integers(2)))


OPTIONS: dict[str, Options] = {"LEAKY_RELU": leaky, "GELU": gelu}
BOTH = ["GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "TANH"]
INT8_ONLY = ["ABS", "ELU", "EXP", "LOG", "RSQRT", "SQRT"]
FUNCTIONS = [(name, dtype) for name in BOTH for dtype in (np.int8, np.uint8)] + [(name, np.int8) for name in INT8_ONLY]
NOT_NEGATIVE = ("LOG", "RSQRT", "SQRT")  # LiteRT fails for negative operands of two of these


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("name", "dtype"), FUNCTIONS)
def test_function_equals_litert(name: str, dtype: type, mode: str) -> None:
    if name == "ELU" and mode == LITERT_REFERENCE:
        mode = XNNPACK  # LiteRT has no reference kernel for ELU, so both modes use the default kernel
    low = int(np.iinfo(dtype).min)
    every_value: Array = np.arange(low, low + 256).astype(dtype).reshape(2, 128)
    rng = np.random.default_rng(7)
    for _ in range(CASES):
        data = unary_model(name, every_value.shape, dtype, *_quants(name, low, rng), OPTIONS.get(name, _none)(rng))
        assert_equals_litert(data, mode, [[every_value]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [0, 9, 10, 15, 27])
def test_hard_swish_into_a_far_larger_scale_equals_litert(right: int, dtype: type) -> None:
    """If the output's scale is at least 2**10 times the input's scale, the 16-bit shifts leave only the signs."""
    low = int(np.iinfo(dtype).min)
    every_value: Array = np.arange(low, low + 256).astype(dtype)
    data = unary_model("HARD_SWISH", (256,), dtype, Quant(0.7 * 2.0**-right, low + 131), Quant(0.7, low + 123))
    assert_equals_litert(data, LITERT_REFERENCE, [[every_value]])


def _none(_rng: np.random.Generator) -> None:
    return None


def _quants(name: str, low: int, rng: np.random.Generator) -> tuple[Quant, Quant]:
    x_scale = 10 ** rng.uniform(-3, 0)
    x = Quant(x_scale, low if name in NOT_NEGATIVE else int(rng.integers(low, low + 256)))
    if name == "LOGISTIC":  # the reference kernel requires this scale
        return x, Quant(1 / 256, int(rng.integers(low, low + 256)))
    # The zero point is not at the upper end of the range. With RELU, such a type would allow only one value, and is
    # refused.
    return x, Quant(x_scale * 10 ** rng.uniform(-1, 1), int(rng.integers(low + 20, low + 200)))
