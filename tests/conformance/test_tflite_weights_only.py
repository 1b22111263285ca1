"""Float layers whose weights the file stores as integers behind DEQUANTIZE, compared with LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from service.compiler.importers.tflite import import_model
from service.compiler.qnn import coverage, oracle
from service.compiler.qnn.numerics import get_mode
from service.core.builds.numerics import LITERT_REFERENCE, XNNPACK
from tests.support import evidence, litert
from tests.support.conformance import assert_compiled_equals
from tests.support.tflite_builder import ModelBuilder, Quant

SHAPES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...]]] = {
    "FULLY_CONNECTED": ((5, 64), (33, 64), 0, (5, 33)),
    "CONV_2D": ((1, 6, 6, 8), (12, 3, 3, 8), 0, (1, 6, 6, 12)),
    "DEPTHWISE_CONV_2D": ((1, 6, 6, 8), (1, 3, 3, 8), 3, (1, 6, 6, 8)),
}
OPTIONS: dict[str, Any] = {
    "FULLY_CONNECTED": schema.FullyConnectedOptionsT(),
    "CONV_2D": schema.Conv2DOptionsT(strideH=1, strideW=1),
    "DEPTHWISE_CONV_2D": schema.DepthwiseConv2DOptionsT(strideH=1, strideW=1, depthMultiplier=1),
}


def layer(name: str, bits: int, *, per_axis: bool, zero_point: int = 0) -> bytes:
    """Returns a model of one layer with random weights of `bits` bits."""
    shape, weights, axis, out = SHAPES[name]
    rng, builder, most = np.random.default_rng(7), ModelBuilder(), (1 << (bits - 1)) - 1
    scales = rng.uniform(1e-3, 2e-2, weights[axis] if per_axis else 1).astype(np.float32).tolist()
    quant = Quant(scales, zero_point, axis if per_axis else 0)
    stored = builder.constant("stored", rng.integers(-most, most + 1, weights).astype(np.int8), quant, bits)
    x, y = builder.tensor("x", shape, np.float32), builder.tensor("y", out, np.float32)
    real = builder.tensor("weights", weights, np.float32)
    bias = builder.constant("bias", rng.normal(0, 1, out[-1]).astype(np.float32))
    builder.operator("DEQUANTIZE", [stored], [real], version=5)
    builder.operator(name, [x, real, bias], [y], OPTIONS[name])
    return builder.build([x], [y])


@pytest.mark.parametrize("numerics", [LITERT_REFERENCE, XNNPACK])
@pytest.mark.parametrize(("bits", "per_axis", "zero_point"), [(8, True, 0), (8, False, 5), (4, True, 0), (4, False, 0)])
@pytest.mark.parametrize("name", SHAPES)
def test_layer_agrees_with_litert(name: str, bits: int, per_axis: bool, zero_point: int, numerics: str) -> None:
    data = layer(name, bits, per_axis=per_axis, zero_point=zero_point)
    imported, loaded = import_model(data), litert.interpreter(data, reference=numerics == LITERT_REFERENCE)
    inputs = litert.random_inputs(loaded, np.random.default_rng(0))
    (expected,), (actual,) = litert.run(loaded, inputs), oracle.run(imported.module, get_mode(numerics), inputs)
    # sums of up to 72 float32 products, added in another order
    evidence.compare(imported, numerics, [[actual]], [[expected]], 2e-6 * float(np.abs(expected).max()))
    assert coverage.report(imported.module)["computes"] == f"weights of {bits} bits, computes in float32"


@pytest.mark.parametrize("name", SHAPES)
def test_compiled_layer_equals_the_oracle(name: str) -> None:
    data = layer(name, 4, per_axis=True)
    module = import_model(data).module
    inputs = litert.random_inputs(litert.interpreter(data), np.random.default_rng(0))
    expected = oracle.run(module, get_mode(LITERT_REFERENCE), inputs)
    assert_compiled_equals(module, LITERT_REFERENCE, [inputs], [], [expected])
