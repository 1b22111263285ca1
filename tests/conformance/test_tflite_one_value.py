"""Fused activations that allow only one stored value, because the quantized bound is at the end of the type's range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from service.core.models.arrays import Array
from tests.support.conformance import assert_oracle_equals_litert
from tests.support.tflite_builder import ModelBuilder, Quant

RELU, RELU6 = 1, 3
OPTIONS: dict[str, Any] = {
    "ADD": schema.AddOptionsT,
    "CONV_2D": lambda **activation: schema.Conv2DOptionsT(
        strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1, **activation
    ),
    "MUL": schema.MulOptionsT,
}


def network(name: str, dtype: type, activation: int) -> bytes:
    rng, limits, builder = np.random.default_rng(0), np.iinfo(dtype), ModelBuilder()
    middle = (int(limits.min) + int(limits.max) + 1) // 2
    image, shape = Quant(0.05, middle + 3), (1, 5, 5, 4)
    x = builder.tensor("x", shape, dtype, image)
    if name == "CONV_2D":
        weights: Array = rng.integers(limits.min + 1, limits.max + 1, (4, 3, 3, 4)).astype(dtype)
        operands = [builder.constant("w", weights, Quant(0.01, middle))]
        operands.append(builder.constant("b", rng.integers(-100, 100, 4).astype(np.int32), Quant(0.05 * 0.01, 0)))
        inputs = [x]
    else:
        inputs = [x, builder.tensor("z", shape, dtype, image)]
        operands = inputs[1:]
    y = builder.tensor("y", shape, dtype, Quant(0.04, int(limits.max)))
    builder.operator(name, [x, *operands], [y], OPTIONS[name](fusedActivationFunction=activation))
    return builder.build(inputs, [y])


@pytest.mark.parametrize("mode", [LITERT_REFERENCE, XNNPACK])
@pytest.mark.parametrize("activation", [RELU, RELU6])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("name", OPTIONS)
def test_the_only_value_is_that_of_litert(name: str, dtype: type, activation: int, mode: str) -> None:
    assert_oracle_equals_litert(network(name, dtype, activation), 2, mode)
